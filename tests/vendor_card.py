"""A device as a vendor's tool knows it, for tests of what is made of the tool's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Card:
    """One device as a tool knows it; every cell is text, so that it can be broken."""

    number: int
    bus: str
    name: str
    power: str = "91.5"
    temperature: str = "37"
    load: str = "42"
    used: str = "3162"
    total: str = "65536"
    pids: tuple[int, ...] = ()


def two(name: str, **first: Any) -> tuple[Card, Card]:
    """Two cards with different readings, the first of them with a process."""
    one = Card(number=0, bus="0000:C1:00.0", name=name, pids=(4711,))
    other = Card(number=1, bus="0000:C2:00.0", name=name, power="60.25", temperature="31", load="7", used="512")
    return replace(one, **first), other


def with_unit(value: str, unit: str) -> str:
    """A number with its unit; a word as it is."""
    return value + unit if value[:1].isdigit() else value


Output = Callable[[Sequence[Card]], str]
"""A tool: what it prints of these cards."""
