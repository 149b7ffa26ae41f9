"""Reads monitor*.jsonl: power, utilisation and memory of the devices inside the train window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import pydantic_core

from suite.events import finite, is_plain_file
from suite.rounding import exact_sum

COVERAGE = 0.5
"""Samples must span at least this much of the window before their mean stands for it."""


@dataclass(slots=True)
class DeviceSamples:
    """One device's samples, each with its wall time."""

    power: list[tuple[float, float]] = field(default_factory=list)
    energy: list[tuple[float, float]] = field(default_factory=list)
    utilisation: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MonitorSummary:
    """Of all devices together; None: not observed."""

    power_w: float | None
    energy_j: float | None
    utilisation: float | None
    memory_bytes: float | None
    devices: int
    energy_source: str = ""
    """`counter`, `samples`, or `counter and samples`; empty where there is no energy."""
    period_s: float | None = None
    """Median time between two samples of one device, as it really was."""


def summarise_monitor(
    run_dir: Path, start: float, stop: float, devices: int, *, scope: str = "unknown", per_board: int = 1
) -> MonitorSummary:
    """Samples with start <= t_wall <= stop. Power and energy need all `devices` of the run: a part is not the whole.

    Energy is the difference of the devices' own counters, scaled from the sampled part to the window; where there is no
    counter, mean power times the window. A counter that stands still or goes back is no counter. What several devices
    report of one board (scope `board`, `per_board` devices) or of one node (scope `node`) is counted once.
    """
    found: dict[str, DeviceSamples] = {}
    for path in sorted(run_dir.glob("monitor*.jsonl")):
        for t_wall, identity, sample in samples(path):
            if start <= t_wall <= stop:
                _add(found.setdefault(f"{path.name} {identity}", DeviceSamples()), t_wall, sample)
    window = stop - start
    shares = _shares(list(found), scope, per_board)
    powers = {name: _mean_power(device, window) for name, device in found.items()}
    energies = {name: _energy(device, window) for name, device in found.items()}
    sources = sorted({energy[1] for energy in energies.values() if energy is not None})
    gaps = [gap for device in found.values() for gap in _gaps(device)]
    whole = len(found) == devices
    utilisations = [exact_sum(d.utilisation) / len(d.utilisation) for d in found.values() if d.utilisation]
    return MonitorSummary(
        power_w=_sum_of(shares, powers) if whole else None,
        energy_j=_sum_of(shares, {name: energy and energy[0] for name, energy in energies.items()}) if whole else None,
        utilisation=exact_sum(utilisations) / len(utilisations) if utilisations else None,
        memory_bytes=max((max(d.memory) for d in found.values() if d.memory), default=None),
        devices=len(found),
        energy_source=" and ".join(sources) if whole else "",
        period_s=median(gaps) if gaps else None,
    )


def _shares(names: Sequence[str], scope: str, per_board: int) -> list[list[str]]:
    """The devices that report the same watts; a node's come in the order of the bus, so neighbours share a board."""
    if scope not in ("board", "node"):
        return [[name] for name in names]
    nodes: dict[str, list[str]] = {}
    for name in names:
        nodes.setdefault(name.partition(" ")[0], []).append(name)
    size = {node: len(members) if scope == "node" else per_board for node, members in nodes.items()}
    return [
        members[begin : begin + size[node]]
        for node, members in nodes.items()
        for begin in range(0, len(members), size[node])
    ]


def _sum_of(shares: Sequence[Sequence[str]], values: Mapping[str, float | None]) -> float | None:
    """Each share once, as the mean of those of its devices that report; None where a share has no such device."""
    each = []
    for share in shares:
        present = [value for name in share if (value := values[name]) is not None]
        if not present:
            return None
        each.append(exact_sum(present) / len(present))
    return exact_sum(each) if shares else None


def _gaps(device: DeviceSamples) -> list[float]:
    times = [t for t, _ in device.power or device.energy]
    return [later - earlier for earlier, later in pairwise(times)]


def samples(path: Path) -> Iterator[tuple[float, str, dict[str, object]]]:
    """(wall time, device id, values) of each readable line; a monitor never spoils a run, so bad lines are left out."""
    if not is_plain_file(path):
        return
    with path.open("rb") as file:
        for raw in file:
            try:
                line = pydantic_core.from_json(raw, allow_inf_nan=False)
            except ValueError:
                continue
            t_wall = finite(line.get("t_wall")) if isinstance(line, dict) else None
            devices = line.get("devices") if isinstance(line, dict) else None
            if t_wall is None or not isinstance(devices, list):
                continue
            for device in devices:
                if isinstance(device, dict):
                    yield t_wall, str(device.get("id")), device


def _add(device: DeviceSamples, t_wall: float, sample: dict[str, object]) -> None:
    numbers = {key: finite(sample.get(key)) for key in ("power_w", "energy_j", "utilisation", "memory_bytes")}
    if (power := numbers["power_w"]) is not None and power >= 0:
        device.power.append((t_wall, power))
    if (energy := numbers["energy_j"]) is not None and energy >= 0:
        device.energy.append((t_wall, energy))
    if (utilisation := numbers["utilisation"]) is not None and utilisation >= 0:
        device.utilisation.append(utilisation)
    if (memory := numbers["memory_bytes"]) is not None and memory > 0:
        device.memory.append(memory)


def _mean_power(device: DeviceSamples, window: float) -> float | None:
    """Mean over the samples; None where they cover too little of the window or the device reads zero throughout."""
    if not _covers(device.power, window) or not (total := exact_sum(power for _, power in device.power)):
        return None
    return total / len(device.power)


def _energy(device: DeviceSamples, window: float) -> tuple[float, str] | None:
    """(joules in the window, where they come from)."""
    if _covers(device.energy, window):
        (t0, first), (t1, last) = device.energy[0], device.energy[-1]
        if last > first and t1 > t0:
            return (last - first) / (t1 - t0) * window, "counter"
    power = _mean_power(device, window)
    return None if power is None else (power * window, "samples")


def _covers(samples: list[tuple[float, float]], window: float) -> bool:
    return bool(samples) and window > 0 and samples[-1][0] - samples[0][0] >= COVERAGE * window
