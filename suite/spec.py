"""The typed form of every TOML file that says what is measured: docs/configuration.md in code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from suite.container_spec import Framework, VendorContainer
from suite.convergence import LEAST_REFERENCE
from suite.outcome import CATEGORIES
from suite.plan import Better, DeviceSpec, Evidence, Machine, Mode
from suite.record import Record, Value
from suite.script import ScriptSpec
from suite.spec_types import DataPath, Name, Param, Pattern, Positive, Preset, Text, TopologyText
from suite.tool_spec import Tool

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


ThresholdName = Literal["time_to_train", "throughput", "speedup", "mfu", "memory"]


class Threshold(Record):
    """What a vendor promises of its chip."""

    value: Positive
    source: Text
    """Who measured it, when, with what."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Relative slack, said in every report."""
    metric: Literal["throughput_train", "throughput_core", "throughput_whole"] | None = None
    """Only of `throughput`; the default is throughput_train."""


class VendorScope(Record):
    """Reserved keys of a vendor's file; every further key is a parameter of the case."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Param] = Field(init=False)

    unset: tuple[Name, ...] = ()
    """Environment variables to remove."""
    base: TopologyText | None = None
    """Topology of the base, if not 1x1."""
    estimate_s: Positive | None = None
    threshold: Mapping[ThresholdName, Threshold] = {}
    check: tuple[CheckSpec, ...] = ()
    """Facts published for this machine and topology, beside the case's own."""

    @property
    def params(self) -> Mapping[str, Value]:
        """The parameters it sets."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _metric_of_throughput(self) -> VendorScope:
        for name, threshold in self.threshold.items():
            if threshold.metric is not None and name != "throughput":
                raise ValueError(
                    f"threshold.{name}.metric = {threshold.metric!r}: only throughput has a choice of metrics"
                )
        return self


class VendorModalScope(VendorScope):
    """A scope of a vendor's file with values for one mode only."""

    mode: Mapping[Mode, VendorScope] = {}


class VendorCaseConfig(VendorModalScope):
    """config_default.toml or config_<machine>x<n>x<p>.toml. Its root holds for the preset `full` only."""

    preset: Mapping[Preset, VendorModalScope] = {}


class Detect(Record):
    """Traces of the vendor's devices in the file system; no tool is run."""

    dev: tuple[str, ...] = ()
    """Globs of device files."""
    pci: tuple[Annotated[str, Field(pattern="^0x[0-9a-f]{4}(:0x[0-9a-f]{4})?$")], ...] = ()
    """PCI ids of the vendor, or of `vendor:device`, of display and accelerator classes only."""


class Probe(Tool):
    """How the controller asks for the devices of its host."""

    method: Literal["nvml", "host", "command"] = "host"

    @model_validator(mode="after")
    def _has_tools(self) -> Probe:
        if self.method == "command":
            self.check_sources(before_devices=True)
        return self


class Monitor(Tool):
    """How utilisation, memory, power and temperature are sampled while a run lasts."""

    method: Literal["nvml", "proc", "command"] = "proc"
    period_s: Positive = 1.0
    min_period_s: Annotated[float, Field(ge=0)] = 0.0
    """The tools are not asked more often than this, whatever `period_s` says."""

    @model_validator(mode="after")
    def _has_tools(self) -> Monitor:
        if self.method == "command":
            self.check_sources(before_devices=False)
        return self


class Launch(Record):
    """How ranks start on this vendor's hosts."""

    local_nodes: Annotated[int, Field(ge=1)] = 1
    """Agents on one host that may stand for nodes."""
    prefix: tuple[str, ...] = ()
    """Arguments before the launcher."""
    python: str = ""
    """Interpreter of the framework; empty: the one that runs pytest."""


class FrameworkLaunch(Record):
    """`[frameworks.<name>]` of vendor.toml."""

    python: Text
    """Interpreter of this framework's ranks; it outdoes `[launch] python`."""


class Fault(Record):
    """Text in a rank's log that tells the category of an error."""

    pattern: Pattern
    category: str

    @model_validator(mode="after")
    def _known_category(self) -> Fault:
        if self.category not in CATEGORIES["error"]:
            raise ValueError(f"category {self.category!r} is none of: {', '.join(CATEGORIES['error'])}")
        return self


class Verified(Record):
    """Evidence that a vendor's folder was run on the chip, for machines that the project does not have."""

    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    bundle_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of the file that `python -m reports bundle` wrote, judged again by this project's own code."""
    by: Text
    """Who ran it."""


class VendorSpec(Record):
    """vendor.toml: whose chip, how it is found, reached, probed and watched."""

    title: Text
    verified: bool | Verified = False
    """Run on the chip, and which bundle shows it; false is shown in every result."""
    default_preset: Preset = "full"
    topologies: tuple[TopologyText, ...]
    exclusive: bool = True
    """A foreign process on a leased device in the timed window voids the measurement."""
    detect: Detect = Detect()
    device: DeviceSpec
    probe: Probe = Probe()
    monitor: Monitor = Monitor()
    launch: Launch = Launch()
    frameworks: Mapping[Framework, FrameworkLaunch] = {}
    container: VendorContainer = VendorContainer()
    faults: tuple[Fault, ...] = ()


Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


class MachineSpec(Record):
    """machines/<name>.toml: facts of one accelerator model, named by its file."""

    match: tuple[Text, ...] = ()
    """Globs over the device's own name."""
    memory_gib: Positive | None = None
    peak_tflops: Mapping[Dtype, Positive] = {}
    """Dense peak of one device by compute dtype; what is absent is unknown."""
    peak_source: str = ""
    power_scope: Literal["die", "board", "node", "unknown"] = "unknown"
    devices_per_board: Annotated[int, Field(ge=1)] = 1
    tdp_w: Positive | None = None

    @model_validator(mode="after")
    def _peaks_have_a_source(self) -> MachineSpec:
        if self.peak_tflops and not self.peak_source:
            raise ValueError("peak_source is missing: say where the figures of peak_tflops come from")
        return self

    def named(self, name: str) -> Machine:
        """The machine under its name."""
        return Machine(name=name, **self.model_dump())


class DataFile(Record):
    """One file or folder that a preset reads."""

    preset: Preset | tuple[Preset, ...]
    path: DataPath
    """Relative to the data folder, or `case:NAME` for a file in the case's own data/."""
    bytes: Annotated[int, Field(ge=0)] = 0
    """0: not known here; only presence is checked."""
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    """Of the file, or the tree digest of a folder; empty: not known here."""
    required: bool = True
    source: Text
    licence: Text
    prepare: str = ""
    """The command that makes it."""

    @property
    def presets(self) -> tuple[str, ...]:
        """Whom it serves."""
        return (self.preset,) if isinstance(self.preset, str) else self.preset


class DataSpec(Record):
    """data.toml: every file with size, digest, origin and licence."""

    file: tuple[DataFile, ...] = ()

    def of(self, preset: str) -> tuple[DataFile, ...]:
        """The files that `preset` reads."""
        return tuple(entry for entry in self.file if preset in entry.presets)
