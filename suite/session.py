"""The session: one invocation of pytest, and the key under which its plugins find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.record import Record


class Session(Record):
    """Made once, by the controller; xdist workers receive it through workerinput."""

    id: str
    """`20260131T120000Z-4f2a`: UTC start and four hex digits."""
    folder: Path
    """Absolute; exists."""
    started: str
    """UTC, ISO 8601 with Z."""
    deadline_wall: float | None = None
    """Unix time at which --time-budget ends."""
    vendor: str
    machine: str
    base_seed: int = 0
    worker: str = "main"
    """`main`, or xdist's worker id."""


SESSION = pytest.StashKey[Session]()
