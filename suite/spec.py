"""case.toml, typed: docs/configuration.md in code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from suite.convergence import LEAST_REFERENCE
from suite.plan import Better, Evidence, Mode
from suite.record import Record
from suite.script import ScriptSpec
from suite.spec_types import Name, Param, Positive, Preset, Text

WEEK_S = 7 * 24 * 3600
"""No case may allow itself more time to train."""

STANDARD_CHECKS = (
    "quality", "time_to_train", "throughput", "speedup", "mfu", "memory", "ranks_in_sync", "ledger", "requality",
    "too_good", "too_slow",
)  # fmt: skip
"""Check names with a fixed meaning, in the order in which they are judged."""


class Target(Record):
    """What quality must reach."""

    value: float
    source: Text
    """Who set it, for a person."""
    counted: Annotated[float, Field(gt=0)] | None = None
    """How many things a whole evaluation counts: what the value is a share of."""
    asked: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None = None
    """The digest of all that it asks, as the driver tells it."""


class Limit(Record):
    """The case's own limits."""

    time_to_train_s: Annotated[float, Field(gt=0, le=WEEK_S)]
    source: Text


class DeadlinesSpec(Record):
    """Budgets of the harness that a case sets for itself; absent ones keep their defaults."""

    provision_s: Positive | None = None
    launch_s: Positive | None = None
    first_step_s: Positive | None = None
    no_progress_s: Positive | None = None
    total_s: Positive | None = None
    teardown_s: Positive | None = None


class CheckSpec(Record):
    """A fact of the case: a metric held to a number or to arithmetic over nnodes, nproc, world and params."""

    name: Name
    metric: Name
    op: Literal[">=", "<=", "=="]
    value: float | str
    source: Text
    required: bool = True
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    unit: str = ""

    @model_validator(mode="after")
    def _own_name(self) -> CheckSpec:
        if self.name in STANDARD_CHECKS:
            raise ValueError(f"the name {self.name!r} has a meaning of its own; choose another")
        return self


class ReferencePoint(Record):
    """Healthy runs of the case's own training at one global batch: the samples that each took to its target."""

    global_batch: Annotated[int, Field(ge=1)]
    samples: Annotated[tuple[Positive, ...], Field(min_length=LEAST_REFERENCE)]
    source: Text
    """Who ran them, when, with what."""


class Scope(Record):
    """Values of a case that hold in a part of it."""

    estimate_s: Positive | None = None
    """Expected wall seconds of a run on the reference machine."""
    params: Mapping[Name, Param] = {}
    target: Target | None = None
    limit: Limit | None = None
    deadlines: DeadlinesSpec | None = None
    check: tuple[CheckSpec, ...] = ()
    reference_points: tuple[ReferencePoint, ...] = ()
    """Of the mode `converge`; those of a narrower scope replace the others."""
    evidence: Evidence | None = None
    """How it is seen what a run does; absent: as in the wider scope."""
    script: ScriptSpec | None = None


class ModalScope(Scope):
    """A scope with values for one mode only."""

    mode: Mapping[Mode, Scope] = {}


class PresetScope(ModalScope):
    """A preset, alone or in the likeness of another."""

    like: Preset | None = None
    """Another preset, whose values hold before those given here, in a vendor's files too."""


class ExternSpec(Record):
    """What a vendor's extern/ may replace."""

    slots: tuple[Name, ...] = ()


class QualitySpec(Record):
    """The case's own measure."""

    metric: Name
    better: Better
    unit: str = ""
    requality_within: Annotated[float, Field(ge=0)] | None = None
    """How far the quality may be when it is evaluated again elsewhere; absent: 1 % of the target."""


class TableSpec(Record):
    """A table that somebody published, reproduced as a report: presets of one pattern, beside what is published."""

    title: Text
    preset: Text
    """Glob of the presets that belong to it."""
    mode: Mode = "throughput"
    metric: Literal["throughput_train", "throughput_core", "throughput_whole"] = "throughput_train"
    columns: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Parameters whose values tell its columns apart."""


class CaseSpec(ModalScope):
    """case.toml. Its root is the widest scope and names every parameter that exists."""

    title: Text
    measurement_version: Annotated[int, Field(ge=1)]
    evidence: Evidence = "driver"
    samples_unit: Text = "sample"
    speedup_metric: Name = "throughput_train"
    mutable: tuple[Name, ...] = ()
    extern: ExternSpec = ExternSpec()
    quality: QualitySpec
    table: Mapping[Name, TableSpec] = {}
    """Published tables that sessions of this case are shown beside."""
    preset: Mapping[Preset, PresetScope] = {}

    @property
    def presets(self) -> tuple[str, ...]:
        """`full` and the others, sorted."""
        return tuple(sorted({"full", *self.preset}))

    @property
    def is_script(self) -> bool:
        """Whether somebody else's program trains, in every preset."""
        return self.script is not None

    def lineage(self, preset: str) -> tuple[str, ...]:
        """The preset, after the one in whose likeness it is made."""
        like = self.preset[preset].like if preset in self.preset else None
        return (preset,) if like is None else (like, preset)

    @model_validator(mode="after")
    def _likeness_of_a_plain_preset(self) -> CaseSpec:
        for name, scope in self.preset.items():
            other = self.preset.get(scope.like) if scope.like else None
            if scope.like and (other is None or other.like):
                plain = ", ".join(sorted(preset for preset, each in self.preset.items() if not each.like))
                raise ValueError(f"preset.{name}.like = {scope.like!r}: name a preset without `like` ({plain})")
        return self

    @model_validator(mode="after")
    def _scripts_in_all_presets(self) -> CaseSpec:
        """What trains, and so which drivers a digest covers, is one answer for a whole case."""
        inner = [*self.mode.values(), *self.preset.values()]
        inner += [scope for preset in self.preset.values() for scope in preset.mode.values()]
        if self.script is None and any(scope.script is not None for scope in inner):
            raise ValueError("a preset or mode has a [script] and the root has none; name launcher and path there")
        return self
