"""What a chip is asked: each check with the metric that ranks measure, and the threshold it is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MODEL = "conformance"
"""Stands where a plan has its model."""

Need = Literal["", "ranks", "one_node"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One check."""

    name: str
    metric: str
    op: Literal["<=", ">="] = "<="
    threshold: float
    unit: str = ""
    why: str
    """Where the threshold comes from."""
    remedy: str
    """Whom to see where it does not hold."""
    required: bool = True
    exclusive: bool = False
    """Required only of devices that a run has for itself: of a shared one nobody can tell whose load it is."""
    need: Need = ""
    """`ranks`: only with several; `one_node`: only with several on one node."""
    worst: float = 1.0
    """Stands for a check that raised: nothing of it was right."""


def _collective(name: str, *, required: bool = True) -> Asked:
    return Asked(
        name=name,
        metric=f"{name}_wrong",
        threshold=0.0,
        unit="fraction",
        why="whole numbers have one sum, whatever the order: every element equals the CPU's",
        remedy="see [device] backend of vendor.toml, and the collective library",
        required=required,
        need="ranks",
    )


def _dtype(name: str, threshold: float, why: str, *, required: bool = False) -> Asked:
    return Asked(
        name=f"dtype_{name}",
        metric=f"{name}_error",
        threshold=threshold,
        unit="relative",
        why=why,
        remedy=f"see what the chip's libraries do with {name}: switches, environment variables, compiler flags",
        required=required,
    )


CHECKS: tuple[Asked, ...] = (
    Asked(
        name="devices",
        metric="devices_wrong",
        threshold=0.0,
        why="each rank holds the device that was leased for it, by name and identity, and no two the same",
        remedy="see [device] identity and visible_devices of vendor.toml",
    ),
    Asked(
        name="synchronise",
        metric="late_share",
        threshold=0.2,
        unit="fraction",
        why="after a synchronise, only the copy of one number is left to wait for",
        remedy="see synchronize of the torch plug-in: no time of this chip can be trusted",
    ),
    Asked(
        name="timers",
        metric="timer_faults",
        threshold=0.0,
        why="clocks and device stamps never go back, and the parts add up to the whole",
        remedy="see the events of the torch plug-in, and the clock source of the host",
    ),
    Asked(
        name="event_timing",
        metric="event_error",
        threshold=0.1,
        unit="relative",
        why="device events and the host's clock, synchronised at both ends, time the same work",
        remedy="set event_timing = false in capabilities.toml: the driver then uses the host's clock",
        required=False,
    ),
    _dtype("fp32", 1e-5, "twenty times what sums of 512 products lose in fp32, a twentieth of TF32's", required=True),
    _dtype("tf32", 2e-3, "four times the rounding of ten bits"),
    _dtype("fp16", 2e-3, "four times the rounding of ten bits"),
    _dtype("bf16", 1.6e-2, "four times the rounding of seven bits"),
    Asked(
        name="seeds",
        metric="draws_not_reproduced",
        threshold=0.0,
        why="one seed gives one series, another seed another",
        remedy="see manual_seed of the torch plug-in",
    ),
    Asked(
        name="memory_returned",
        metric="memory_kept_mib",
        threshold=64.0,
        unit="MiB",
        why="a quarter of what a process held that has ended",
        remedy="see the device driver: memory of dead processes stays taken",
        exclusive=True,
        worst=1e6,
    ),
    Asked(
        name="monitor_utilisation",
        metric="utilisation_rise",
        op=">=",
        threshold=20.0,
        unit="%",
        why="a device that multiplies without a pause is busier than one that waits",
        remedy="see [monitor] of vendor.toml: fields, units, and which device a line is about",
        exclusive=True,
    ),
    Asked(
        name="monitor_power",
        metric="load_power_w",
        op=">=",
        threshold=1.0,
        unit="W",
        why="no chip computes without power",
        remedy="see [monitor] of vendor.toml: the field of the power, and its unit",
        exclusive=True,
    ),
    _collective("all_reduce"),
    _collective("all_gather"),
    _collective("reduce_scatter"),
    _collective("broadcast"),
    _collective("all_to_all", required=False),
    Asked(
        name="backend",
        metric="backend_wrong",
        threshold=0.0,
        why="the process group has the back end of vendor.toml for this device type, read back from it",
        remedy="see [device] backend of vendor.toml, and what the torch plug-in registers",
        need="ranks",
    ),
    Asked(
        name="fast_path",
        metric="exchange_ratio",
        op=">=",
        threshold=1.0,
        unit="x",
        why="an exchange between devices of one node is no slower than a copy to the host's memory and back",
        remedy="see links, peer access and the collective library's choice of transport",
        exclusive=True,
        need="one_node",
        worst=0.0,
    ),
)
"""In the order of judging."""

BY_NAME: Mapping[str, Asked] = {asked.name: asked for asked in CHECKS}

OBSERVED = ("monitor_utilisation", "monitor_power")
"""Checks that the harness computes from its monitor; of these, ranks tell only when they waited and computed."""

SABOTAGES: Mapping[str, str] = {
    "no_synchronise": "synchronise returns at once",
    "rank_dropped": "the last rank's part is missing in every collective",
    "tf32_as_fp32": "operands of products lose thirteen bits",
    "seed_ignored": "seeding does nothing",
}
"""What `--sabotage` breaks in a conformance run, by name."""
