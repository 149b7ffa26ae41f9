"""Figures that end at a target, where some runs never got there: what is then known is a bound, never a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from suite.record import Record


class Amount(Record):
    """One metric of one side, over its runs."""

    unit: str
    values: tuple[float, ...]
    """Of the runs that have it."""
    bounds: tuple[float, ...] = ()
    """Of the runs that missed the target, what the figure had come to at the last evaluation; 0: unknown."""

    @property
    def range(self) -> Range:
        """Where the median over all runs lies."""
        return median_range(self.values, self.bounds)


class Range(NamedTuple):
    """What is known of a number."""

    low: float
    high: float | None
    """None: without an upper end."""

    @property
    def exact(self) -> bool:
        """It is a number, not a bound."""
        return self.low == self.high


def median_range(values: Sequence[float], bounds: Sequence[float] = ()) -> Range:
    """Where the median of all runs lies, those of `bounds` being anywhere above theirs. Raises ValueError for no runs.

    The median grows with each of them, so its ends are reached where all are at their bounds, and where all are beyond
    every number. It is exact as long as more runs reached the target than missed it, and none was given up too early.
    """
    if not values and not bounds:
        raise ValueError("a median needs at least one run")
    high = float(median([*values, *[math.inf] * len(bounds)]))
    return Range(float(median([*values, *bounds])), high if math.isfinite(high) else None)


def ratio_range(over: Range, under: Range) -> Range | None:
    """`over` / `under`, both above zero; None: nothing is known of it."""
    low = over.low / under.high if under.high else 0.0
    high = over.high / under.low if over.high is not None and under.low > 0 else None
    return None if low <= 0 and high is None else Range(low, high)
