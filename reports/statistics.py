"""The statistics of comparing runs: every function pure, and the same numbers give the same answer."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

from suite.convergence import ALPHA

RESAMPLES = 10_000
SEED = 20_260_131
EXACT_UP_TO = 50
"""Runs of both sides together up to which the rank test counts every arrangement."""

_BITS = 64
"""Room for one count: 50 over 25 arrangements need 47."""


class Interval(NamedTuple):
    """What a ratio may be, at 95 %."""

    low: float
    high: float


def bootstrap_ratio(old: Sequence[float], new: Sequence[float], *, resamples: int = RESAMPLES) -> Interval:
    """Percentile interval of median(new) / median(old), whole runs resampled on each side. Needs positive values."""
    # Sorted, because the order in which runs were kept must not change the answer.
    before, after = sorted(old), sorted(new)
    if not before or not after or before[0] <= 0 or after[0] <= 0:
        raise ValueError("a ratio needs at least one run on each side, and values above zero")
    draw = random.Random(SEED)
    ratios = sorted(_resampled_median(draw, after) / _resampled_median(draw, before) for _ in range(resamples))
    cut = round(resamples * ALPHA / 2)
    return Interval(ratios[cut], ratios[resamples - 1 - cut])


def _resampled_median(draw: random.Random, values: list[float]) -> float:
    sample = draw.choices(values, k=len(values))
    sample.sort()
    half = len(sample) // 2
    return sample[half] if len(sample) % 2 else (sample[half - 1] + sample[half]) / 2


def mann_whitney(old: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided p of the rank test that both sides come from one distribution; exact, also with ties, for few runs."""
    if not old or not new:
        raise ValueError("a test needs runs on both sides")
    ranks = _double_ranks([*old, *new])
    observed = sum(ranks[: len(old)])
    if len(ranks) <= EXACT_UP_TO:
        return _exact_p(ranks, len(old), observed)
    return _normal_p(ranks, len(old), observed)


def _double_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that the middle rank of ties is whole."""
    ordered = sorted(values)
    first = {value: position for position, value in reversed(list(enumerate(ordered)))}
    last = {value: position for position, value in enumerate(ordered)}
    return [first[value] + last[value] + 2 for value in values]


def _exact_p(ranks: Sequence[int], size: int, observed: int) -> float:
    """The share of all choices of `size` ranks whose sum lies at least as far from the mean."""
    # One big integer a size: its n-th group of bits counts the choices with the sum n.
    counts = [1] + [0] * size
    for rank in ranks:
        for chosen in range(size, 0, -1):
            counts[chosen] += counts[chosen - 1] << (rank * _BITS)
    centre = size * (len(ranks) + 1)
    distance = abs(observed - centre)
    packed, total, extreme = counts[size], 0, 0
    data = packed.to_bytes((packed.bit_length() + 7) // 8 + 8, "little")
    for value, start in enumerate(range(0, len(data) - 7, 8)):
        count = int.from_bytes(data[start : start + 8], "little")
        total += count
        extreme += count if abs(value - centre) >= distance else 0
    return extreme / total


def _normal_p(ranks: Sequence[int], size: int, observed: int) -> float:
    """Normal approximation, ties and continuity corrected."""
    total, other = len(ranks), len(ranks) - size
    ties = sum(count**3 - count for count in (ranks.count(rank) for rank in set(ranks)))
    variance = size * other / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    distance = max(abs(observed / 2 - size * (total + 1) / 2) - 0.5, 0.0)
    return math.erfc(distance / math.sqrt(2 * variance))


def smallest_p(old: int, new: int) -> float:
    """The least p that so many runs can ever reach: every run of one side beyond every run of the other."""
    return min(2 / math.comb(old + new, old), 1.0) if old and new else 1.0


def runs_needed(comparisons: int) -> int:
    """Runs on each side with which the smallest p stays significant among so many comparisons."""
    runs = 1
    while smallest_p(runs, runs) * max(comparisons, 1) >= ALPHA:
        runs += 1
    return runs


def superiority(old: Sequence[float], new: Sequence[float]) -> float:
    """Effect size: the chance that a run of `new` is larger than one of `old`, ties counting half; 0.5 is no effect."""
    wins = math.fsum((after > before) + (after == before) / 2 for after in new for before in old)
    return wins / (len(old) * len(new))


def holm(ps: Sequence[float]) -> list[float]:
    """Each p adjusted for the number of comparisons, in the given order."""
    adjusted, worst = [0.0] * len(ps), 0.0
    for position, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        worst = max(worst, min((len(ps) - position) * ps[index], 1.0))
        adjusted[index] = worst
    return adjusted


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over the mean; None with less than two runs."""
    return stdev(values) / abs(fmean(values)) if len(values) > 1 and fmean(values) else None


def detectable(old: Sequence[float], new: Sequence[float]) -> float | None:
    """The smallest relative difference that these runs find four times in five; None where nothing can be found.

    From n = 15.7 (CV/d)^2 a side, with the spread of both sides pooled and the harmonic mean of their numbers.
    """
    if smallest_p(len(old), len(new)) >= ALPHA:
        return None
    spreads = [spread for values in (old, new) if (spread := variation(values)) is not None]
    if len(spreads) < 2:
        return None
    runs = 2 / (1 / len(old) + 1 / len(new))
    return math.sqrt(15.7 * fmean(spread**2 for spread in spreads) / runs)


def middle(values: Sequence[float]) -> float:
    """The median. Raises statistics' StatisticsError for no values."""
    return float(median(values))
