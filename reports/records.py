"""What a journal holds: the records of the hook, and the few that the reports plugin adds of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from suite.outcome import Outcome
from suite.record import Record


class Told(Record):
    """A record as announced. Keys of a later version are passed over, so that old reports read new journals."""

    model_config = ConfigDict(extra="ignore")


class SessionRecord(Told):
    """Facts of the session; told at its start and again, completed, at its end."""

    kind: Literal["session"]
    id: str | None = None
    started: str | None = None
    """UTC, ISO 8601 with Z."""
    finished: str | None = None
    command: str | tuple[str, ...] | None = None
    """A shell line, or the argument list."""
    exit_status: int | None = None
    vendor: str | None = None
    machine: str | None = None
    versions: Mapping[str, str | None] | None = None
    git: Mapping[str, str | bool | None] | None = None
    ci: Mapping[str, str] | None = None
    folder: str | None = None
    workers: int | tuple[str, ...] | None = None


class SelectedRecord(Told):
    """All plans that pytest selected, in their order; written once, after collection."""

    kind: Literal["selected"]
    plans: tuple[Mapping[str, object], ...]


class PlanRecord(Told):
    """A plan is about to have its first effect."""

    kind: Literal["plan"]
    id: str
    folder: str = ""
    plan: Mapping[str, object] = {}


class PhaseRecord(Told):
    """A run has entered a phase."""

    kind: Literal["phase"]
    id: str
    n: int | None = None
    name: str = ""
    t_wall: float | None = None


class AttemptRecord(Told):
    """A run has ended; kept whatever came of it."""

    kind: Literal["attempt"]
    id: str
    n: int
    attempt: int = 1
    folder: str = ""
    outcome: Outcome


class OutcomeRecord(Told):
    """A plan is settled without a verdict."""

    kind: Literal["outcome"]
    id: str
    outcome: Outcome


class VerdictRecord(Told):
    """A plan is judged; `result` is what result.json holds."""

    kind: Literal["verdict"]
    id: str
    folder: str = ""
    result: Mapping[str, object]


class WorkerRecord(Told):
    """A worker process of xdist ended before its work did."""

    kind: Literal["worker"]
    worker: str
    reason: str


class InterruptRecord(Told):
    """The session was interrupted (Ctrl-C, SIGTERM)."""

    kind: Literal["interrupt"]


AnyRecord = (
    SessionRecord
    | SelectedRecord
    | PlanRecord
    | PhaseRecord
    | AttemptRecord
    | OutcomeRecord
    | VerdictRecord
    | WorkerRecord
    | InterruptRecord
)

KINDS = frozenset({"session", "selected", "plan", "phase", "attempt", "outcome", "verdict", "worker", "interrupt"})
"""Kinds that this version knows; others are of a later one and passed over."""

RECORDS: TypeAdapter[AnyRecord] = TypeAdapter(Annotated[AnyRecord, Field(discriminator="kind")])
