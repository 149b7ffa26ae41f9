"""What one run yielded: numbers with their reasons for being absent. Computed from the run folder alone."""

from __future__ import annotations

from collections.abc import Mapping

from suite.outcome import Outcome
from suite.record import Record

LEDGER_PHASES = (
    "queue", "stage", "image", "prepare", "launch",  # harness's clock, up to rank 0's header
    "init", "compile", "warmup", "train", "data_wait", "eval", "checkpoint",  # rank 0's own clock
    "teardown",  # harness's clock, after rank 0's run_stop
)  # fmt: skip
"""The partition of a run's wall time. `wall_s` is their sum plus `unaccounted_s`."""


class Missing(Record):
    """Why a metric has no value."""

    category: str
    """A category of `inconclusive`: no_steady_state, not_observable, not_measured, no_baseline, noise."""
    reason: str


class Point(Record):
    """One evaluation."""

    step: int
    samples: int
    t: float
    """Seconds since run_start on rank 0's clock; of a resumed run, active seconds."""
    metric: str
    value: float | str
    """A string (`nan`, `inf`, `-inf`) where the number is not finite."""


class Measurement(Record):
    """One run, measured."""

    n: int
    seed: int
    run: str = ""
    """Its id, as rank 0 says: no other run on earth has it."""
    folder: str
    """Relative to the plan's folder: `r1`, `r1.2`, `base/r1`."""
    attempts: int = 1
    problem: Outcome | None = None
    """Why the run is lost or void (crash, hang, nonfinite_loss, invalid_measurement …); None: it ended well."""
    metrics: Mapping[str, float] = {}
    missing: Mapping[str, Missing] = {}
    ledger: Mapping[str, float] = {}
    """Seconds by LEDGER_PHASES, plus `wall_s` and `unaccounted_s`."""
    curve: tuple[Point, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    """(step, training loss) at most 2,000 points, evenly thinned."""
    trace: str = ""
    """A digest of what was trained on and of the losses, all steps; empty: not told."""
    environment: Mapping[str, object] = {}
    """Allow-listed facts of the run: hosts, devices, versions, precision, fallbacks."""
    notes: tuple[str, ...] = ()
