"""A row of FlagPerf's CASES: `model:framework:hardware:nnodes:nproc:repeat` -> data folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from suite.errors import UsageProblem, did_you_mean
from suite.topology import Topology

VERSIONED = re.compile(r"(?P<name>[A-Za-z][\w-]*?)_(?P<version>\d[\w.]*)")
"""`pytorch_1.8`: FlagPerf chose an image by the version; the folder was `pytorch` all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row that the suite can at least name."""

    model: str
    framework: str
    machine: str
    topology: Topology
    repeat: int
    data_dir: str
    version: str = ""
    """The framework version that FlagPerf's key asked for; empty: none."""

    @property
    def key(self) -> str:
        """The key of a --cases file."""
        nodes, devices = self.topology.nnodes, self.topology.nproc
        return f"{self.model}:{self.framework}:{self.machine}:{nodes}:{devices}:{self.repeat}"


def parse_row(key: str, data_dir: object) -> Row:
    """The row of one entry of CASES. Raises UsageProblem naming the key and what is wrong with it."""
    fields = [field.strip() for field in key.split(":")]
    if len(fields) != 6 or not all(fields):
        raise UsageProblem(f"case {key!r} has not the six fields model:framework:hardware:nnodes:nproc:repeat")
    model, framework, machine, nnodes, nproc, repeat = fields
    if not isinstance(data_dir, str):
        raise UsageProblem(f"case {key!r}: the data folder {data_dir!r} is not a text")
    if not re.fullmatch(r"[1-9]\d{0,5}", repeat):
        raise UsageProblem(f"case {key!r}: repeat {repeat!r} is not a whole number of at least 1")
    try:
        topology = Topology.parse(f"{nnodes}x{nproc}")
    except UsageProblem as problem:
        raise UsageProblem(f"case {key!r}: {problem}") from None
    versioned = VERSIONED.fullmatch(framework)
    return Row(
        model=model,
        framework=versioned["name"] if versioned else framework,
        machine=machine,
        topology=topology,
        repeat=int(repeat),
        data_dir=data_dir,
        version=versioned["version"] if versioned else "",
    )


def obstacle(row: Row, vendor: str, suite_dir: Path) -> str:
    """Why the suite has no plan for this row, as a sentence; empty: it has one."""
    case = f"{row.model}/{row.framework}"
    if not (suite_dir / "cases" / case / "case.toml").is_file():
        known = [str(path.parent.relative_to(suite_dir / "cases")) for path in suite_dir.glob("cases/*/*/case.toml")]
        return f"the suite has no case {case}{did_you_mean(case, known)}"
    folder = suite_dir / "vendors" / vendor / case
    if not (suite_dir / "vendors" / vendor / "vendor.toml").is_file():
        known = [path.parent.name for path in suite_dir.glob("vendors/*/vendor.toml")]
        return f"the suite has no vendor {vendor}{did_you_mean(vendor, known)}"
    config = f"config_{row.machine}x{row.topology}.toml"
    if not (folder / config).is_file() and not (folder / "config_default.toml").is_file():
        return (
            f"vendors/{vendor}/{case} has neither {config} nor config_default.toml; "
            "convert FlagPerf's: python -m tools convert flagperf-config FILE"
        )
    return ""
