"""What a comparison of two chips says: records of plain numbers, the same whichever way they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from reports.censored import Amount
from suite.plan import Better
from suite.record import Record

View = Literal["same recipe", "best recipe"]


class Line(Record):
    """One metric on both sides."""

    metric: str
    better: Better | None
    """Null: its direction is the case's own, so only the values are shown."""
    a: Amount | None
    b: Amount | None
    """Null: that side did not measure it."""
    gain: float | None = None
    """How many times better B's median is than A's: above 1, B is better."""
    at_least: float | None = None
    at_most: float | None = None
    """Where runs missed the target: bounds of `gain`, which is then null."""
    low: float | None = None
    high: float | None = None
    """95 % interval of `gain`."""
    reason: str = ""
    """Why there is no gain, or no interval."""


class Duel(Record):
    """One plan of each side beside the other."""

    a: str
    b: str
    """Ids of the plans."""
    views: tuple[View, ...]
    same: tuple[str, ...]
    """Names of the facts that are known and equal."""
    differs: Mapping[str, tuple[str, str]]
    """Fact -> what it is for A and for B."""
    unknown: tuple[str, ...]
    """Facts that one side does not keep."""
    notes: tuple[str, ...]
    """What a reader must know before the numbers."""
    lines: tuple[Line, ...]


class Versus(Record):
    """Two sides, A and B."""

    schema_version: Literal[1] = 1
    a: str
    b: str
    duels: tuple[Duel, ...]
    not_compared: tuple[str, ...]
    """A sentence for each plan that has no partner, or no partner of the same recipe."""
    prices: tuple[str, ...]
    """Every price that was used, with its source and its day."""
