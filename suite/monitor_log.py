"""Reads monitor*.jsonl: power, utilisation and memory of the devices inside the train window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pydantic_core

from suite.events import finite, is_plain_file

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


def summarise_monitor(run_dir: Path, start: float, stop: float, devices: int) -> MonitorSummary:
    """Samples with start <= t_wall <= stop. Power and energy need all `devices` of the run: a part is not the whole.

    Energy is the difference of the devices' own counters, scaled from the sampled part to the window; where there is no
    counter, mean power times the window. A counter that stands still or goes back is no counter.
    """
    found: dict[str, DeviceSamples] = {}
    for path in sorted(run_dir.glob("monitor*.jsonl")):
        for t_wall, identity, sample in _samples(path):
            if start <= t_wall <= stop:
                _add(found.setdefault(f"{path.name} {identity}", DeviceSamples()), t_wall, sample)
    window = stop - start
    powers = [_mean_power(device, window) for device in found.values()]
    energies = [_energy(device, window) for device in found.values()]
    whole = len(found) == devices
    utilisations = [sum(d.utilisation) / len(d.utilisation) for d in found.values() if d.utilisation]
    return MonitorSummary(
        power_w=_sum(powers) if whole else None,
        energy_j=_sum(energies) if whole else None,
        utilisation=sum(utilisations) / len(utilisations) if utilisations else None,
        memory_bytes=max((max(d.memory) for d in found.values() if d.memory), default=None),
        devices=len(found),
    )


def _samples(path: Path) -> Iterator[tuple[float, str, dict[str, object]]]:
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
    if not _covers(device.power, window) or not (total := sum(power for _, power in device.power)):
        return None
    return total / len(device.power)


def _energy(device: DeviceSamples, window: float) -> float | None:
    if _covers(device.energy, window):
        (t0, first), (t1, last) = device.energy[0], device.energy[-1]
        if last > first and t1 > t0:
            return (last - first) / (t1 - t0) * window
    power = _mean_power(device, window)
    return None if power is None else power * window


def _covers(samples: list[tuple[float, float]], window: float) -> bool:
    return bool(samples) and window > 0 and samples[-1][0] - samples[0][0] >= COVERAGE * window


def _sum(values: list[float | None]) -> float | None:
    """The sum, or None where one is missing or there is nothing to add."""
    present = [value for value in values if value is not None]
    return sum(present) if present and len(present) == len(values) else None
