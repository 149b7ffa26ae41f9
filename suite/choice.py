"""One test to plan: its case, place, preset and mode, with the id and the seeds that follow from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from suite.catalog import CaseFolder
from suite.plan import Mode
from suite.topology import Topology


def plan_id(
    *, model: str, framework: str, vendor: str, machine: str, preset: str, mode: Mode, topology: Topology
) -> str:
    """`glm-pytorch-cpu-host-1x1`; a preset other than `full` and the mode `throughput` stand before the topology."""
    parts = [model, framework, vendor, machine]
    parts += [preset] if preset != "full" else []
    parts += [mode] if mode != "converge" else []
    return "-".join([*parts, str(topology)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One test to plan."""

    case: CaseFolder
    machine: str
    topology: Topology
    preset: str
    mode: Mode
    repeat: int
    data_dir: str = ""

    def id(self, vendor: str) -> str:
        """As `plan_id`."""
        return plan_id(
            model=self.case.model,
            framework=self.case.framework,
            vendor=vendor,
            machine=self.machine,
            preset=self.preset,
            mode=self.mode,
            topology=self.topology,
        )


def derive_seed(base_seed: int, case: str, n: int) -> int:
    """31 bits from the session's seed, the case and the repeat: independent of order, workers and machines."""
    return int.from_bytes(hashlib.sha256(f"{base_seed}:{case}:{n}".encode()).digest()[:4], "big") & 0x7FFFFFFF
