"""The name of a vendor's configuration file: `config_<machine>x<nnodes>x<nproc>.toml`."""

from __future__ import annotations

import re

from suite.errors import UsageProblem
from suite.topology import Topology

DEFAULT_CONFIG = "config_default.toml"


def config_name(machine: str, topology: Topology) -> str:
    """The file that holds what differs on `machine` at `topology`."""
    return f"config_{machine}x{topology}.toml"


def parse_config_name(name: str) -> tuple[str, Topology]:
    """Machine and topology, read from the right: a machine's name may hold `x` and `-`. Raises UsageProblem."""
    match = re.fullmatch(r"config_(.+)x([1-9][0-9]*)x([1-9][0-9]*)\.toml", name)
    if not match:
        raise UsageProblem(
            f"{name}: no configuration's name, which is {DEFAULT_CONFIG} or config_<machine>x<nodes>x<devices>.toml"
        )
    return match[1], Topology(nnodes=int(match[2]), nproc=int(match[3]))
