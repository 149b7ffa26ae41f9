"""A fault: how it is brought about through pytest, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.scene import Scene

Act = Callable[["Scene"], None]

# How a fault may end, as keys of Fault.
PASSED: Mapping[str, Any] = {"expect": "passed", "exit": 0}
UNAVAILABLE: Mapping[str, Any] = {"expect": "not_started: unavailable", "exit": 5}
INVALID: Mapping[str, Any] = {"expect": "failed: invalid_measurement", "exit": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    """As `python -m tests.faults NAME` takes it."""
    what: str
    """For a person."""
    script: str = ""
    """What the fake training does, in the words of fixtures/faults/trainer.py."""
    expect: str
    """`status: category` of the plan; `exit 4` where nothing was planned."""
    exit: int
    """Exit status of pytest; negative: the signal that killed it."""
    says: str = ""
    """A part of the reason, or of what was printed where there is no reason."""
    rank: int | None = None
    attempts: int = 1
    vendor: str = "basalt"
    topology: str = "1x1"
    deadlines: Mapping[str, float] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Further arguments of pytest; `{root}` is the checkout."""
    real_launcher: bool = False
    """torchrun itself instead of its stand-in."""
    rebuild: bool = False
    """Nobody was left to write the report: it is rebuilt from the journals."""
    before: Act | None = None
    """What is arranged before pytest starts."""
    act: Act | None = None
    """What is done while it runs."""
    check: Act | None = None
    """What must hold afterwards, beside the outcome."""

    def differences(self, row: Row) -> list[str]:
        """What is not as it should be, one sentence each."""
        wanted: dict[str, tuple[object, object]] = {
            "outcome": (self.expect, row.outcome),
            "exit": (self.exit, row.exit),
            "attempts": (self.attempts, row.attempts),
            "left": ((), row.left),
        }
        if self.rank is not None:
            wanted["rank"] = (self.rank, row.rank)
        found = [f"{name} is {seen}, not {should}" for name, (should, seen) in wanted.items() if should != seen]
        return found if self.says in row.reason else [*found, f"the reason is {row.reason!r}, without {self.says!r}"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What happened."""

    name: str
    command: str
    """pytest's, relative to its checkout."""
    injected: tuple[Mapping[str, Any], ...]
    """{what, pid, host, t_wall}."""
    outcome: str
    reason: str
    rank: int | None
    attempts: int
    exit: int
    verdict_s: float
    """From the first injection (where there was none: the start) to the verdict, or to pytest's end without one."""
    left: tuple[str, ...]
    """What was still there ten seconds after pytest's end."""
    gone_s: float
    """From pytest's end until nothing was left."""
