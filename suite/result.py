"""result.json, schema version 1: the judged plan, readable without this project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from suite.measurement import Point
from suite.outcome import Outcome
from suite.plan import Division, Evidence, Mode
from suite.record import Record, Value
from suite.topology import Topology

CheckStatus = Literal["pass", "fail", "inconclusive"]


class CheckResult(Record):
    """A check with its number and what came of it."""

    name: str
    metric: str
    value: float | str | None
    op: str
    threshold: float | None
    unit: str
    required: bool
    status: CheckStatus
    reason: str = ""
    """For `inconclusive`: `<category>: <sentence>`; for `fail`: the sentence; empty for a pass."""
    source: str = ""
    baseline: Mapping[str, object] | None = None
    """For a comparison: {id, value, unit, folder} of what it was compared with."""


class MetricResult(Record):
    """A metric over all repeats."""

    value: float
    """Median over the runs (olympic mean where the case says so)."""
    unit: str
    values: tuple[float, ...]


class RunResult(Record):
    """One run inside the result."""

    n: int
    seed: int
    folder: str
    outcome: Outcome
    metrics: Mapping[str, float]
    ledger: Mapping[str, float]
    curve: tuple[Point, ...]
    attempts: int
    environment: Mapping[str, object]


class Artifact(Record):
    """A file of the run folder, by digest."""

    path: str
    bytes: int
    sha256: str


class Base(Record):
    """What the speedup was measured against."""

    id: str
    plan_digest: str
    metric: str
    value: float | None
    values: tuple[float, ...]
    unit: str
    folder: str
    note: str = ""


class Result(Record):
    """One plan, judged."""

    schema_version: Literal[1] = 1
    id: str
    model: str
    framework: str
    vendor: str
    machine: str
    topology: Topology
    preset: str
    mode: Mode
    division: Division
    division_reasons: tuple[str, ...] = ()
    evidence: Evidence
    verified: bool
    seeds: tuple[int, ...]
    outcome: Outcome
    checks: tuple[CheckResult, ...]
    metrics: Mapping[str, MetricResult]
    ledger: Mapping[str, float]
    curve: tuple[Point, ...]
    runs: tuple[RunResult, ...]
    params: Mapping[str, Value]
    origins: Mapping[str, str]
    case_digest: str
    measurement_version: str
    plan_digest: str
    data_digest: str
    environment: Mapping[str, object]
    comparability_key: str
    base: Base | None
    artifacts: tuple[Artifact, ...]
