"""The plan: the frozen, fully resolved description of one test, and the request it answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from suite.record import Record, Value
from suite.topology import Topology

Mode = Literal["converge", "throughput"]
Division = Literal["closed", "open"]
Evidence = Literal["driver", "callback", "log"]
Better = Literal["higher", "lower"]
ScriptLauncher = Literal["torchrun", "accelerate", "deepspeed"]


class CaseRow(Record):
    """One row of a --cases table, FlagPerf's `"glm:pytorch:A100:1:8:1" = "data dir"`."""

    model: str
    framework: str
    machine: str
    topology: Topology
    repeat: int
    data_dir: str


class Request(Record):
    """What was asked for: argv and the probe, with nothing of pytest in it."""

    vendor: str
    machine: str | None = None
    """The accelerator model; None: not known here (a login node without a site, no devices)."""
    devices: int | None = None
    """Devices that this host (or the site) offers on one node; None: unknown."""
    nodes: int = 1
    """Nodes that the site offers; local agents count for a vendor that shares its host (cpu)."""
    models: tuple[str, ...] = ()
    """Exact names or globs; empty: all."""
    frameworks: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    """Exact names or globs; empty: the vendor's default preset."""
    topologies: tuple[str, ...] = ()
    """Exact only; empty: all."""
    mode: Mode = "converge"
    repeat: int = 1
    seed: int = 0
    sets: tuple[str, ...] = ()
    """`KEY=VALUE` of --set, in order."""
    cases: tuple[CaseRow, ...] = ()
    sabotage: str | None = None
    fits_only: bool = False
    """No filter of any kind was given: leave out what the devices cannot hold."""


class Check(Record):
    """A metric held to one threshold."""

    name: str
    """`quality`, `time_to_train`, `throughput`, `speedup`, `ranks_in_sync`, `ledger`, `mfu`, `memory`, or its own."""
    metric: str
    op: Literal[">=", "<=", "=="]
    threshold: float | None
    """None: nobody declared one; the check is then `inconclusive: no_threshold` and not required."""
    unit: str = ""
    required: bool
    source: str = ""
    """Where the threshold comes from, for a person."""
    origin: str = ""
    """The file that set it, relative to the suite."""
    tolerance: float = 0.0
    """Relative slack of the threshold, absolute where the threshold is 0."""


class Quality(Record):
    """The case's own measure of how good the model has become."""

    metric: str
    better: Better
    unit: str = ""
    target: float
    source: str
    requality_within: float | None = None
    """How far an evaluation of the same model may be from it; None: 1 % of the target."""
    counted: float | None = None
    """How many things a whole evaluation counts; None: not known."""
    asked: str | None = None
    """The digest of all that it asks; None: not known."""


class Deadlines(Record):
    """Budgets in seconds; every wait of the harness ends with one of these."""

    provision_s: float = 600
    launch_s: float = 180
    """From the launch command to the header of every rank."""
    first_step_s: float = 900
    """From the last header to the first window of steps."""
    no_progress_s: float = 600
    """Without any event but heartbeats."""
    total_s: float
    teardown_s: float = 60


class DeviceSpec(Record):
    """How the training side reaches the chip: `[device]` of vendor.toml, handed to device.py."""

    type: str
    """torch's device type: `cpu`, or what the vendor's plug-in registers."""
    plugin: str = ""
    """Module to import before the device type exists; empty: none."""
    backend: str
    """torch.distributed back end, as in `gloo`, or one for each device type: `cpu:gloo,X:Y`."""
    identity: Literal["uuid", "pci", "serial", "host"] = "host"
    visible_devices: str = ""
    """Environment variable that hides devices; empty: none."""
    visible_style: Literal["index", "uuid", "none"] = "none"
    shared: bool = False
    """Several runs may use the device at once (a CPU); a lease is then not exclusive."""
    options: Mapping[str, Value] = {}
    """What only this vendor's runtime code reads."""


class Machine(Record):
    """Facts of one accelerator model, from machines/<name>.toml."""

    name: str
    match: tuple[str, ...] = ()
    """Globs over the device's own name."""
    memory_gib: float | None = None
    peak_tflops: Mapping[str, float] = {}
    """Dense peak of ONE device by compute dtype: fp32, tf32, fp16, bf16, fp8. Missing: unknown, so no MFU."""
    peak_source: str = ""
    power_scope: Literal["die", "board", "node", "unknown"] = "unknown"
    devices_per_board: int = 1
    tdp_w: float | None = None


class Step(Record):
    """One replaced part of the training: a slot filled by extern/, or runtime code of the vendor."""

    slot: str
    path: str
    proven: bool = False
    """The equivalence test passed and is recorded in baselines/<vendor>/."""


class Script(Record):
    """Somebody else's program that trains in place of a train.py of ours."""

    launcher: ScriptLauncher
    path: str
    """Relative to the case's folder, or absolute where the script lives in the image."""
    adapters: tuple[str, ...] = ()
    """Who reads its output, with evidence `log`."""
    options: tuple[str, ...] = ()
    """Words for the launcher beyond those that follow from topology and precision."""
    arguments: tuple[str, ...] = ()
    """Words for the script; `{seed}`, `{run_dir}`, `{data_dir}` and `{case_dir}` are filled in by the run."""
    environment: Mapping[str, str] = {}
    links: Mapping[str, str] = {}
    """Names in its working folder, which is the run's, and what they stand for."""


class Plan(Record):
    """Everything that one test runs and is held to. Run `repeat` times, judged once."""

    schema_version: Literal[1] = 1
    id: str
    model: str
    framework: str
    vendor: str
    machine: str
    """`host` for a vendor whose device is the host."""
    topology: Topology
    preset: str
    mode: Mode
    division: Division
    division_reasons: tuple[str, ...] = ()
    evidence: Evidence
    verified: bool = True
    """False: the vendor's folder was never run on the chip; results say so."""

    params: Mapping[str, Value]
    origins: Mapping[str, str]
    """Key -> the file (relative to the suite) or option that set it."""
    environment: Mapping[str, str] = {}
    """From the vendor's environment_variables.sh files, in order."""
    unset: tuple[str, ...] = ()
    """Environment variables to remove."""

    samples_unit: str
    """What one sample is: `sequence`, `image` …"""
    quality: Quality
    checks: tuple[Check, ...]
    speedup_metric: str
    base: Plan | None = None
    """What the speedup is measured against; None for the base itself."""
    base_note: str = ""
    limit_s: float | None = None
    """Training ends once time-to-train is past this: the verdict is then certain."""
    deadlines: Deadlines
    estimate_s: float | None = None
    """Expected wall seconds of one run, for the cost estimate of --plan."""

    repeat: int = 1
    seeds: tuple[int, ...]
    sabotage: str | None = None

    device: DeviceSpec
    exclusive: bool = False
    """A foreign process on a leased device in the timed window voids the measurement."""
    machine_facts: Machine
    slots: tuple[Step, ...] = ()
    script: Script | None = None
    """None: the case has a train.py."""
    case_dir: Path
    vendor_dir: Path
    vendor_case_dir: Path | None = None
    train_data: str = ""
    """Relative to the data folder; empty: the case needs no file or carries its own."""
    data_dir: str = ""
    """Data folder named by --cases; the site and --data-dir may name another at run time."""

    case_digest: str
    """Of the code that can move a number; empty, as `plan_digest` is, in a plan that is not selected to run."""
    measurement_version: str
    """`case:1 driver/pytorch:1`."""
    plan_digest: str
    data_digest: str

    @property
    def world_size(self) -> int:
        """Ranks of one run."""
        return self.topology.world_size

    @property
    def data_ranks(self) -> int:
        """Ranks that have a batch of their own, and count it."""
        return data_ranks(self.params, self.world_size)


def data_ranks(params: Mapping[str, Value], world_size: int) -> int:
    """How many of `world_size` ranks have a batch of their own: those of a tensor-parallel group share one."""
    shared = params.get("tensor_parallel", 1)
    return world_size // shared if isinstance(shared, int) and shared > 0 else world_size
