"""Steady state: where the step times stop falling, and whether they then stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

BLOCK = 10
"""Steps of one block; medians of blocks are compared, so that a lone stall does not count."""
MIN_STEADY_STEPS = 20
"""Fewer steady steps than this are no measurement."""
BASE_TOLERANCE = 0.01
"""On a quiet machine two consecutive block medians differ by less than this."""
MAX_TOLERANCE = 0.25
"""However noisy the machine: blocks further apart than this are not one state."""
DRIFT_LIMIT = 0.05
"""The last third may be this much slower (or faster) than the first."""
SLOW_STEP = 1.5
"""A step this many times the median, within the first block, still belongs to warm-up."""
MIN_JUMPS = 3
"""Of so few differences between blocks a trend could be taken for noise: then the noise of single steps says what to
expect of them."""
KENDALL_Z = 1.96
"""A trend is one when Mann-Kendall's z exceeds this: the 95 % interval of the Theil-Sen slope then excludes zero."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of a run, as indices into its step times, or why there is none."""

    first: int
    """Index of the first steady step; the number of steps where there is none."""
    median_s: float
    tolerance: float
    """Relative difference of block medians that this machine's noise explains."""
    drift: float
    """Last third over first third of the steady steps, minus one."""
    reason: str = ""
    """Empty: steady."""


def find_steady(steps: Sequence[float]) -> Steady:
    """The longest tail of `steps` that is steady.

    Blocks of BLOCK steps. With m_j their medians and d the median of |m_j+1 - m_j| over the second half of the run,
    tolerance = max(BASE_TOLERANCE, 3 x 1.4826 x d / median(m_j)), at most MAX_TOLERANCE: neighbours more than three
    robust standard deviations apart are not noise. A slow trend does not widen it: where there are fewer than MIN_JUMPS
    differences, d is what the differences of successive steps let expect. The tail begins at the first step whose next
    two blocks agree and are no slower than what follows, after any step of the first block that takes SLOW_STEP times
    the median. Blocks agree within the tolerance, or where a steady trend through them would stay within DRIFT_LIMIT
    over the whole run, which matters in runs of fewer than 75 steps. The tail must hold MIN_STEADY_STEPS steps and not
    drift: by a difference of its last third from its first beyond DRIFT_LIMIT (or the tolerance) that is also a trend.
    """
    half = steps[len(steps) // 2 :]
    usual = median(half) if half else 0.0
    tolerance = _tolerance(half)
    if len(steps) < MIN_STEADY_STEPS:
        return Steady(len(steps), usual, tolerance, 0.0, f"{len(steps)} steps, fewer than {MIN_STEADY_STEPS}")
    first = _first_steady(steps, tolerance, usual) if _typical_jump(half) <= MAX_TOLERANCE else len(steps)
    tail = steps[first:]
    if len(tail) < MIN_STEADY_STEPS:
        reason = (
            f"no {MIN_STEADY_STEPS} steps in a row at one pace (blocks of {BLOCK} differ by more than {tolerance:.1%})"
        )
        return Steady(len(steps), usual, tolerance, 0.0, reason)
    drift = _drift(tail)
    if abs(drift) > max(DRIFT_LIMIT, tolerance) and _is_trend(_block_medians(tail)):
        reason = f"step time drifted by {drift:+.1%} from the first to the last third of the steady steps"
        return Steady(len(steps), usual, tolerance, drift, reason)
    return Steady(first, median(tail), tolerance, drift)


def _block_medians(steps: Sequence[float]) -> list[float]:
    """Medians of whole blocks."""
    return [median(steps[i : i + BLOCK]) for i in range(0, len(steps) - BLOCK + 1, BLOCK)]


def _tolerance(steps: Sequence[float]) -> float:
    return min(max(BASE_TOLERANCE, 3 * 1.4826 * _typical_jump(steps)), MAX_TOLERANCE)


def _typical_jump(steps: Sequence[float]) -> float:
    """Median difference of neighbouring block medians, relative to their level."""
    medians = _block_medians(steps)
    if not medians or not (centre := median(medians)):
        return 0.0
    jumps = [abs(b - a) for a, b in pairwise(medians)]
    return (median(jumps) if len(jumps) >= MIN_JUMPS else _expected_jump(steps)) / centre


def _expected_jump(steps: Sequence[float]) -> float:
    """Of the medians of two blocks, if each step is off by luck of its own; a trend hardly parts successive steps.

    For normal noise of deviation s: median |x_i+1 - x_i| = 0.6745 sqrt(2) s, and a median of n has the deviation
    sqrt(pi / 2n) s, so the median difference of two of them is sqrt(pi / 2n) as large. Equal successive times are one
    that was told for several steps.
    """
    told = [steps[0], *(b for a, b in pairwise(steps) if b != a)]
    if len(told) < 2:
        return 0.0
    per_block = BLOCK * len(told) / len(steps)
    return median(abs(b - a) for a, b in pairwise(told)) * math.sqrt(math.pi / (2 * per_block))


def _first_steady(steps: Sequence[float], tolerance: float, usual: float) -> int:
    """Index of the first steady step; the number of steps where there is none."""
    ceiling = usual * (1 + max(tolerance, DRIFT_LIMIT))
    # The thirds of a run lie two thirds of it apart, and may differ by the limit: neighbours by their part of that.
    allowed = max(tolerance, DRIFT_LIMIT * BLOCK / (2 / 3 * len(steps)))
    for start in range(0, len(steps) - 2 * BLOCK + 1, BLOCK // 2):
        here, there = median(steps[start : start + BLOCK]), median(steps[start + BLOCK : start + 2 * BLOCK])
        if abs(here - there) <= allowed * max(there, 1e-12) and here <= ceiling:
            slow = [i for i in range(start, start + BLOCK) if steps[i] > SLOW_STEP * here]
            return slow[-1] + 1 if slow else start
    return len(steps)


def _drift(steps: Sequence[float]) -> float:
    third = len(steps) // 3
    begin = median(steps[:third])
    return median(steps[-third:]) / begin - 1 if begin else 0.0


def _is_trend(medians: Sequence[float]) -> bool:
    """Mann and Kendall's test; long runs are thinned to 200 blocks, which is plenty for a trend."""
    stride = max(len(medians) // 200, 1)
    thin = medians[::stride]
    n = len(thin)
    if n < 5:
        return n > 1
    score = sum((later > earlier) - (later < earlier) for i, earlier in enumerate(thin) for later in thin[i + 1 :])
    return abs(score) - 1 > KENDALL_Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
