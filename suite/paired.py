"""The ratio of two kinds of runs that took turns, with its interval: base, run, base, run … base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from suite.convergence import student_t
from suite.rounding import exact_sum

LEVEL = 0.95
"""How often the interval holds the true ratio, if only luck and the host's drift tell neighbours apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Run over base, by the ratios of neighbours."""

    values: tuple[float, ...]
    """Each run's own."""
    value: float
    """Their geometric mean."""
    low: float | None
    high: float | None
    """Both None: these runs do not show how much they vary."""
    freedom: int
    """Degrees of freedom of Student's t behind the interval; 0: there is none."""

    def over(self, devices: float) -> Ratio:
        """The same for each of so many times the devices."""
        low, high = (None if end is None else end / devices for end in (self.low, self.high))
        values = tuple(value / devices for value in self.values)
        return replace(self, values=values, value=self.value / devices, low=low, high=high)


def in_turns(bases: Sequence[float], runs: Sequence[float]) -> Ratio:
    """Of runs with a base before each and, mostly, one after the last. All numbers are above zero.

    A run is held against the mean of its two neighbours, in logarithms: what drifts evenly cancels. Neighbouring pairs
    share a base, so their mean varies more than their spread alone says: by what independent runs would give.
    """
    b, r = [math.log(value) for value in bases], [math.log(value) for value in runs]
    n = len(r)
    if len(b) == n + 1:
        logs = [r[k] - (b[k] + b[k + 1]) / 2 for k in range(n)]
        if n == 1:
            # One run has no spread of its own: the two bases, half of whose difference is squared, lend it theirs.
            return _ratio(logs, logs, 1.5 * (b[1] - b[0]) ** 2 / 2, 1)
        shared = (2 - 0.5 / n) / (1.5 - 0.5 / n)
    else:
        logs, shared = [r[k] - b[k] for k in range(min(n, len(b)))], 1.0
    if len(logs) < 2:
        return _ratio(logs, logs, 0.0, 0)
    return _ratio(logs, logs, variance(logs) * shared / len(logs), len(logs) - 1)


def apart(bases: Sequence[float], runs: Sequence[float]) -> Ratio:
    """Of runs against base runs of another time: both sides' spread, taken as equal. All numbers are above zero.

    What changed on the host in between is in no spread: no interval shows it.
    """
    b, r = [math.log(value) for value in bases], [math.log(value) for value in runs]
    logs = [value - fmean(b) for value in r]
    freedom = len(b) + len(r) - 2
    squares = exact_sum([*((value - fmean(b)) ** 2 for value in b), *((value - fmean(r)) ** 2 for value in r)])
    pooled = squares / freedom if freedom else 0.0
    return _ratio(logs, [fmean(logs)], pooled * (1 / len(b) + 1 / len(r)), freedom)


def _ratio(each: Sequence[float], logs: Sequence[float], squared_error: float, freedom: int) -> Ratio:
    """Back from logarithms, with the interval of `freedom`."""
    centre = fmean(logs)
    half = student_t((1 + LEVEL) / 2, freedom) * math.sqrt(squared_error) if freedom else None
    return Ratio(
        values=tuple(_exp(value) for value in each),
        value=_exp(centre),
        low=None if half is None else _exp(centre - half),
        high=None if half is None else _exp(centre + half),
        freedom=freedom,
    )


def _exp(value: float) -> float:
    """Two bases a thousandfold apart, and the t of one degree, would leave the range of floats."""
    return math.exp(max(-700.0, min(700.0, value)))
