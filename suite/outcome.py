"""How a plan ended: the fixed taxonomy, and nothing else."""

from __future__ import annotations

from typing import Literal

from suite.record import Record

Status = Literal["passed", "failed", "error", "inconclusive", "not_started"]

CATEGORIES: dict[str, tuple[str, ...]] = {
    "passed": (),
    "failed": (
        "quality",
        "time_to_train",
        "throughput",
        "speedup",
        "ranks_diverged",
        "nonfinite_loss",
        "too_good",
        "invalid_measurement",
        "check",
    ),
    "error": (
        "config",
        "environment",
        "provision",
        "out_of_memory",
        "crash",
        "hang",
        "timeout",
        "lost_node",
        "preempted",
        "worker_lost",
        "interrupted",
        "harness",
    ),
    "inconclusive": ("no_baseline", "no_threshold", "no_steady_state", "noise", "not_observable", "not_measured"),
    "not_started": ("unavailable", "budget", "interrupted"),
}
"""Which categories a status may carry. `failed: check` is a case's own declared fact that does not hold."""

RETRIED = frozenset({"lost_node", "preempted", "provision", "environment"})
"""Categories of `error` that say nothing about the chip, so that another attempt is fair."""


class Outcome(Record):
    """Exactly one a plan."""

    status: Status
    category: str = ""
    """One of CATEGORIES[status]; empty only for `passed`."""
    reason: str = ""
    """One sentence for a person, with the value and the remedy where there is one."""
    rank: int | None = None
    """The global rank that caused it, where one did."""
    log_tail: tuple[str, ...] = ()
    """The last lines of that rank's log."""

    def model_post_init(self, context: object, /) -> None:
        allowed = CATEGORIES[self.status]
        if self.category not in (allowed or ("",)):
            raise ValueError(f"outcome {self.status!r} has no category {self.category!r} (have: {', '.join(allowed)})")


PASSED = Outcome(status="passed")
