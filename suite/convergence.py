"""Reference convergence points: how many samples a healthy training takes to its target, and how far luck explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, pstdev
from typing import NamedTuple

ALPHA = 0.05
LEAST_REFERENCE, LEAST_RUNS = 5, 3
"""With fewer, trimming leaves nothing to compare."""


class Convergence(NamedTuple):
    """Means of samples-to-target between which a set of runs agrees with its reference."""

    fewest: float
    """Below: better than luck explains."""
    most: float
    """Above: it learns more slowly."""


class Reference(NamedTuple):
    """Reference runs at one global batch, without their fastest and their slowest."""

    mean: float
    spread: float
    runs: int
    """Those that were kept."""


def olympic_mean(values: Sequence[float]) -> float:
    """The mean without the fastest and the slowest. Raises ValueError for less than three."""
    if len(values) < LEAST_RUNS:
        raise ValueError(f"{len(values)} values: the olympic mean drops two and needs at least three")
    return fmean(sorted(values)[1:-1])


def trimmed(samples: Sequence[float]) -> Reference:
    """The reference of runs that took `samples`. Raises ValueError for less than five."""
    if len(samples) < LEAST_REFERENCE:
        raise ValueError(f"{len(samples)} reference runs: at least {LEAST_REFERENCE} are needed")
    kept = sorted(samples)[1:-1]
    return Reference(fmean(kept), pstdev(kept), len(kept))


def convergence(reference: Sequence[float], runs: int) -> Convergence:
    """Limits for the olympic mean of `runs` runs, by `limits`. Raises ValueError for too few of either."""
    if len(reference) < LEAST_REFERENCE or runs < LEAST_RUNS:
        raise ValueError(f"{len(reference)} reference runs and {runs} runs: at least five and three are needed")
    return limits(trimmed(reference), runs)


def limits(reference: Reference, runs: int, resolution: float = 0.0) -> Convergence:
    """Limits for the olympic mean of `runs` runs: Student's t, 95 % on each side, the reference's own spread.

    `resolution`: samples between two evaluations. A target met anywhere between them counts at the later one, so the
    spread is at least that of chance within such a gap.
    """
    rest = runs - 2
    spread = math.hypot(reference.spread, resolution / math.sqrt(12))
    slack = student_t(1 - ALPHA, reference.runs + rest - 2) * spread * math.sqrt(1 / reference.runs + 1 / rest)
    return Convergence(reference.mean - slack, reference.mean + slack)


def reference_at(points: Sequence[tuple[int, Reference]], global_batch: int) -> Reference | None:
    """The reference for a global batch, between its neighbours where it has none; None above the largest.

    A point slower than the line between its neighbours is left out: a bad reference must not loosen the limits. Below
    the smallest batch, the smallest one's holds.
    """
    kept = _pruned(sorted(points, key=lambda point: point[0]))
    if not kept or global_batch > kept[-1][0]:
        return None
    above = next(index for index, (batch, _) in enumerate(kept) if batch >= global_batch)
    if above == 0 or kept[above][0] == global_batch:
        return kept[above][1]
    return _between(kept[above - 1], kept[above], global_batch)


def _pruned(points: Sequence[tuple[int, Reference]]) -> list[tuple[int, Reference]]:
    """The points on or below every line between two others."""
    kept = list(points)
    while True:
        inner = zip(kept, kept[1:], kept[2:])
        worse = [here for left, here, right in inner if here[1].mean > _between(left, right, here[0]).mean]
        if not worse:
            return kept
        kept.remove(worse[0])


def _between(left: tuple[int, Reference], right: tuple[int, Reference], global_batch: int) -> Reference:
    share = (global_batch - left[0]) / (right[0] - left[0])
    one, other = left[1], right[1]
    return Reference(
        one.mean + share * (other.mean - one.mean),
        one.spread + share * (other.spread - one.spread),
        min(one.runs, other.runs),
    )


@cache
def student_t(probability: float, freedom: int) -> float:
    """Quantile of Student's t, for probabilities from one half up."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        tail = _beta_share(freedom / (freedom + middle * middle), freedom / 2, 0.5) / 2
        low, high = (middle, high) if 1 - tail < probability else (low, middle)
    return (low + high) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    fraction = 1.0
    for m in range(200, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    return front / (a * fraction)
