"""What two measurements are compared by: a result reduced to its numbers, and to what makes them comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping

from suite.plan import Division, Evidence, Mode
from suite.record import Record
from suite.result import MetricResult, Result

KEPT = (
    "throughput_train", "throughput_core", "throughput_whole", "tokens_per_s", "time_to_train_s", "epoch_time_s",
    "step_time_median_s", "step_time_p99_s", "init_s", "mfu", "memory_peak_gib", "power_mean_w",
    "energy_per_sample_j", "samples_trained", "quality_best", "speedup",
)  # fmt: skip
"""Metrics that outlive their session, in the order in which they are shown."""

TOLD = ("precision", "image", "framework", "versions", "driver_version")
"""Keys of the environment that are part of a fingerprint, as in `suite.digest.comparability_key`."""


class Figures(Record):
    """One plan's numbers, whoever kept them."""

    id: str
    model: str
    framework: str
    vendor: str
    machine: str
    topology: str
    """`1x8`."""
    preset: str
    mode: Mode
    division: Division
    evidence: Evidence
    outcome: str = "passed"
    """`passed`, or `failed: quality`."""
    measurement_version: str
    data_digest: str
    case_digest: str
    plan_digest: str
    fingerprint: str
    """The comparability key; empty: never judged."""
    environment: Mapping[str, str] = {}
    """What the fingerprint holds of the environment, as text, so that two that differ can say in what."""
    metric: Mapping[str, MetricResult] = {}

    @property
    def place(self) -> tuple[str, str]:
        """Whose chip, which chip."""
        return (self.vendor, self.machine)

    @property
    def task(self) -> tuple[str, str, str, str, str]:
        """What was trained, and how widely, whatever it ran on."""
        return (self.model, self.framework, self.preset, self.mode, self.topology)


def figures_of(result: Result) -> Figures:
    """`result` without its runs, checks and curves."""
    outcome = result.outcome
    return Figures(
        id=result.id,
        model=result.model,
        framework=result.framework,
        vendor=result.vendor,
        machine=result.machine,
        topology=str(result.topology),
        preset=result.preset,
        mode=result.mode,
        division=result.division,
        evidence=result.evidence,
        outcome=f"{outcome.status}: {outcome.category}" if outcome.category else outcome.status,
        measurement_version=result.measurement_version,
        data_digest=result.data_digest,
        case_digest=result.case_digest,
        plan_digest=result.plan_digest,
        fingerprint=result.comparability_key,
        environment=told(result.environment),
        metric={name: result.metrics[name] for name in KEPT if name in result.metrics},
    )


def told(environment: Mapping[str, object]) -> dict[str, str]:
    """The fingerprint's part of an environment: text as it is, anything else as JSON; what is absent stays absent."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        for name in TOLD
        if (value := environment.get(name)) is not None
    }
