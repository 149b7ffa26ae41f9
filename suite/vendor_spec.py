"""A vendor's TOML files, typed: vendor.toml, machines/*.toml, and its configurations of cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from suite.container_spec import Framework, VendorContainer
from suite.outcome import CATEGORIES
from suite.plan import DeviceSpec, Machine, Mode
from suite.record import Record, Value
from suite.spec import CheckSpec
from suite.spec_types import Name, Param, Pattern, Positive, Preset, Text, TopologyText
from suite.tool_spec import Tool

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
