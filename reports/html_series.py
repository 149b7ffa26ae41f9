"""What a run folder still shows over time: losses, step times, and what the monitor saw; the source of the plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

import pydantic_core

from suite.curve import thinned
from suite.events import BadEvents, finite, is_plain_file
from suite.rank_stream import RankStream, read_stream
from suite.run_metrics import train_end
from suite.steady import find_steady

MAX_STREAMS = 16
"""Ranks whose step times are read; a picture of a thousand ranks looks the same."""
MAX_DEVICES = 16
"""Devices that are drawn, in the order met."""
MAX_SAMPLES = 20_000
"""Lines read of one monitor file; more are a sign of trouble, not of detail."""
MAX_POINTS = 800
"""Points kept of one device's line: more than a plot has pixels."""

QUANTITIES = ("utilisation", "power_w", "memory_gib")
"""What is drawn of a device, in the order of the panels."""

T = TypeVar("T")


class Trace(NamedTuple):
    """One quantity of one device over the seconds since training began."""

    device: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """What could be read of one run; empty parts were not there to be read."""

    n: int
    losses: tuple[tuple[int, float], ...] = ()
    steps_s: tuple[float, ...] = ()
    """Steady steps, each on the slowest of `streams` ranks; without a steady state all but the first."""
    streams: int = 0
    left_out: int = 0
    """Steps before the steady state."""
    traces: Mapping[str, tuple[Trace, ...]]
    """By QUANTITIES; a quantity that nobody sampled is absent."""
    window: tuple[float, float] | None = None
    """From the first touch of training data to its end, on the same axis as the traces."""
    devices: int = 0
    """Devices sampled; at most MAX_DEVICES of them have traces."""
    problem: str = ""
    """Why events could not be read to their end."""


def run_folder(session: Path, id: str, folder: str) -> Path | None:
    """`<session>/<id>/<folder>`; None for what is no folder inside the session, whatever result.json claims."""
    place = PurePosixPath(id) / folder
    if place.is_absolute() or ".." in place.parts or "\0" in str(place):
        return None
    path = session / place
    steps = [session / parent for parent in (place, *place.parents) if parent != PurePosixPath(".")]
    return path if path.is_dir() and not any(step.is_symlink() for step in steps) else None


def read_series(path: Path, n: int) -> RunSeries:
    """The series of run `n` in the run folder `path`. Never raises for what is in it."""
    streams, problem = read_streams(path)
    first = streams[0] if streams else None
    steps, left_out = steady_steps(streams)
    origin = _origin(first)
    traces, devices = _traces(path, origin)
    return RunSeries(
        n=n,
        losses=thinned(first.losses) if first else (),
        steps_s=steps,
        streams=len(streams),
        left_out=left_out,
        traces=traces,
        devices=devices,
        window=_window(first, origin),
        problem=problem,
    )


def read_streams(path: Path) -> tuple[list[RankStream], str]:
    """(the streams of the first ranks of the run folder `path`, why they end early). Never raises for what is in it."""
    streams: list[RankStream] = []
    for rank in range(MAX_STREAMS):
        file = path / "events" / f"rank{rank}.jsonl"
        if rank and not is_plain_file(file):
            break
        try:
            streams.append(read_stream(file, rank))
        except BadEvents as bad:
            return streams, str(bad)
    return streams, ""


def thin(points: Sequence[T], limit: int = MAX_POINTS) -> tuple[T, ...]:
    """At most `limit` of `points`, evenly spaced, the first and the last among them."""
    if len(points) <= limit:
        return tuple(points)
    stride = (len(points) - 1) / (limit - 1)
    return tuple(points[round(i * stride)] for i in range(limit))


def steady_steps(streams: Sequence[RankStream]) -> tuple[tuple[float, ...], int]:
    """(steady step times, each of its slowest rank; how many steps came before)."""
    if not streams or not streams[0].step_s:
        return (), 0
    whole = [stream for stream in streams if len(stream.step_s) == len(streams[0].step_s)]
    slowest = [max(times) for times in zip(*(stream.step_s for stream in whole))]
    steady = find_steady(streams[0].step_s)
    first = 1 if steady.reason else steady.first
    return tuple(slowest[first:]), first


def _origin(first: RankStream | None) -> float | None:
    """Wall time of run_start; None where rank 0 does not tell."""
    start = first.first("run_start") if first else None
    if first is None or start is None or not first.header.has("t_wall"):
        return None
    try:
        return first.header.number("t_wall") + start.t - first.header.t
    except BadEvents:
        return None


def _window(first: RankStream | None, origin: float | None) -> tuple[float, float] | None:
    start = first.first("run_start") if first else None
    end = train_end(first) if first else None
    return (0.0, end - start.t) if origin is not None and start is not None and end is not None else None


def _traces(path: Path, origin: float | None) -> tuple[dict[str, tuple[Trace, ...]], int]:
    """(traces by quantity, number of devices), from the monitor's files of all nodes."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    names: dict[str, None] = {}
    files = sorted(path.glob("monitor*.jsonl"))
    for node, file in enumerate(files):
        for t_wall, device, numbers in _samples(file):
            origin = t_wall if origin is None else origin
            name = device if len(files) == 1 else f"node {node} {device}"
            names[name] = None
            if len(names) > MAX_DEVICES and name not in tuple(names)[:MAX_DEVICES]:
                continue
            for quantity, value in numbers.items():
                found.setdefault(quantity, {}).setdefault(name, []).append((t_wall - origin, value))
    traces = {
        quantity: tuple(Trace(name, thin(points)) for name, points in found[quantity].items())
        for quantity in QUANTITIES
        if quantity in found
    }
    return traces, len(names)


def _samples(file: Path) -> Iterator[tuple[float, str, dict[str, float]]]:
    """(wall time, device, values by quantity) of each readable line; without devices, those of the host."""
    if not is_plain_file(file):
        return
    with file.open("rb") as lines:
        for raw in islice(lines, MAX_SAMPLES):
            try:
                line = pydantic_core.from_json(raw, allow_inf_nan=False)
            except ValueError:
                continue
            t_wall = finite(line.get("t_wall")) if isinstance(line, dict) else None
            if t_wall is None:
                continue
            devices, host = line.get("devices"), line.get("host")
            if isinstance(devices, list) and devices:
                for index, device in enumerate(devices):
                    if isinstance(device, dict):
                        yield t_wall, f"device {index}", _numbers(device, "utilisation", "memory_bytes")
            elif isinstance(host, dict):
                yield t_wall, "host", _numbers(host, "cpu_percent", "memory_bytes")


def _numbers(sample: Mapping[str, object], utilisation: str, memory: str) -> dict[str, float]:
    """The finite numbers of one sample, by QUANTITIES."""
    bytes_ = finite(sample.get(memory))
    found = {
        "utilisation": finite(sample.get(utilisation)),
        "power_w": finite(sample.get("power_w")),
        "memory_gib": None if bytes_ is None else bytes_ / (1 << 30),
    }
    return {name: value for name, value in found.items() if value is not None and value >= 0}
