"""What a comparison says: records of plain numbers, the same whichever way they are shown."""

from __future__ import annotations

from typing import Literal

from suite.record import Record

Verdict = Literal["regression", "improvement", "same", "inconclusive", "shown"]
"""`shown`: a metric that informs and never gates."""


class Sample(Record):
    """One metric on one side."""

    median: float
    values: tuple[float, ...]
    variation: float | None = None
    """Standard deviation over the mean; null with less than two runs."""
    olympic_mean: float | None = None
    """Mean without the fastest and the slowest; null with less than three runs."""


class Row(Record):
    """One metric of one plan on both sides."""

    id: str
    """Of the plan on the new side."""
    metric: str
    unit: str
    old: Sample | None
    new: Sample | None
    """Null: that side did not measure it."""
    ratio: float | None = None
    """New median over old."""
    low: float | None = None
    high: float | None = None
    """95 % interval of the ratio."""
    p: float | None = None
    """Mann-Whitney, two-sided; adjusted for all gating comparisons (Holm) in `p_adjusted`."""
    p_adjusted: float | None = None
    effect: float | None = None
    """Chance that a new run is larger than an old one; 0.5 is none."""
    tolerance: float | None = None
    """Relative change that is accepted; null: never gates."""
    detectable: float | None = None
    """Smallest relative change that so many runs of this spread can find."""
    verdict: Verdict
    reason: str = ""


class Pair(Record):
    """One plan on both sides."""

    id: str
    old_id: str
    gates: bool
    """Both sides are division closed and not read from a log."""
    notes: tuple[str, ...]
    """What differs beside the numbers, a sentence each."""
    rows: tuple[Row, ...]


class Comparison(Record):
    """Two sides, plan by plan."""

    schema_version: Literal[1] = 1
    old: str
    new: str
    across: tuple[str, ...]
    """Differences that were allowed on request."""
    pairs: tuple[Pair, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def gating(self) -> tuple[Row, ...]:
        """Every row that can be a regression."""
        return tuple(row for pair in self.pairs if pair.gates for row in pair.rows if row.tolerance is not None)
