"""What a mini's target should be: the rule of docs/statistics.md, computed from healthy and broken runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

HEALTHY_RUNS = 20
"""Fewer leave a failure rate above 14 % possible (95 % confidence, none of 20 failing)."""

BELOW_WORST = 2.0
"""Standard deviations between the worst healthy run and the target."""

FROM_BROKEN = 3.0
"""Standard deviations, at least, between the target and any broken run."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The healthy runs of a mini at their end."""

    worst: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, ends: Sequence[float], better: str) -> Spread | None:
        """None for fewer than two runs: one has no spread."""
        if len(ends) < 2:
            return None
        worst = min(ends) if better == "higher" else max(ends)
        return cls(worst=worst, mean=fmean(ends), deviation=stdev(ends))


def easier(value: float, better: str) -> float:
    """Two significant figures, rounded to the side that more runs reach."""
    if value == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(value)))
    unit = 10.0**digits
    # A value that has two figures already must not lose one to the last bit of a float.
    scaled = round(value * unit, 6)
    return round((math.floor(scaled) if better == "higher" else math.ceil(scaled)) / unit, max(digits, 0))


def target_of(spread: Spread, broken: Mapping[str, float], better: str, runs: int) -> tuple[float | None, str]:
    """(target, "") or (None, why the rule gives none). `broken` holds the best evaluation of each broken run."""
    if runs < HEALTHY_RUNS:
        return None, f"{runs} healthy runs of the {HEALTHY_RUNS} that the rule asks for"
    if not broken:
        return None, "no broken run to keep away from"
    sign = 1.0 if better == "higher" else -1.0
    target = easier(spread.worst - sign * BELOW_WORST * spread.deviation, better)
    name, nearest = max(broken.items(), key=lambda item: sign * item[1])
    gap = sign * (target - nearest)
    if gap < FROM_BROKEN * spread.deviation:
        return None, f"{target:g} is less than {FROM_BROKEN:g} standard deviations from {name} ({nearest:.4g})"
    if gap <= abs(spread.mean - target):
        return None, f"{target:g} is nearer to {name} ({nearest:.4g}) than to the healthy mean ({spread.mean:.4g})"
    return target, ""
