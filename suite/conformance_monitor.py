"""What the harness's monitor saw while the ranks of a conformance run rested, and while they computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pydantic_core

from suite.events import BadEvents, Event, finite, is_plain_file
from suite.monitor_log import samples
from suite.plan import Plan
from suite.rank_stream import RankStream
from suite.rounding import exact_sum

_FILE = "monitor.jsonl"

BUSY = 80.0
"""Percent of utilisation at rest above which a rise says nothing: others are at work."""

Seen = tuple[float | None, str]
"""A value with a remark, or why there is none."""

Span = tuple[float, float]
Spans = Mapping[str, Span]
"""By the file of a node's monitor: each node has a clock of its own."""


def observed(name: str, plan: Plan, run_dir: Path, streams: Sequence[RankStream]) -> Seen:
    """The value of the check `name`, in the times that the ranks tell. Raises BadEvents where one tells none."""
    rest, load = _spans("rest", plan, streams), _spans("load", plan, streams)
    if name == "monitor_power":
        return _power(run_dir, load)
    if plan.device.type == "cpu":
        return _rise_of_host(plan, run_dir, rest[_FILE], load[_FILE])
    return _rise(run_dir, rest, load)


def _spans(name: str, plan: Plan, streams: Sequence[RankStream]) -> dict[str, Span]:
    """By the clock of each node's first rank."""
    firsts = streams[:: plan.topology.nproc]
    return {f"monitor-node{node}.jsonl" if node else _FILE: _told(stream, name) for node, stream in enumerate(firsts)}


def _told(stream: RankStream, name: str) -> Span:
    event = next((mark for mark in stream.all("finding") if mark.text("check") == "monitor"), None)
    if event is None:
        raise BadEvents(f"events/rank{stream.rank}.jsonl: no finding about the monitor")
    return _span(event, name, stream.header.number("t_wall") - stream.header.t)


def _span(event: Event, name: str, to_wall: float) -> Span:
    instants = event.series(name)
    if len(instants) != 2:
        raise event.bad(f"{name} is not the two instants of its begin and end")
    return to_wall + instants[0], to_wall + instants[1]


def _power(run_dir: Path, load: Spans) -> Seen:
    """The least of all devices: one that shows none is one too many."""
    watts = _means(run_dir, "power_w", load)
    if not watts:
        return None, "the monitor shows no power_w under load"
    return min(watts.values()), f"{min(watts.values()):.4g} to {max(watts.values()):.4g} W under load"


def _rise(run_dir: Path, rest: Spans, load: Spans) -> Seen:
    """The least rise of all devices, in points."""
    before, under = _means(run_dir, "utilisation", rest), _means(run_dir, "utilisation", load)
    rises = {device: under[device] - before[device] for device in under if device in before}
    if not rises:
        return None, f"the monitor shows no utilisation {'at rest' if under else 'under load'}"
    told = ", ".join(f"{device}: {before[device]:.0f} to {under[device]:.0f} %" for device in sorted(rises))
    least = min(rises, key=lambda device: rises[device])
    if before[least] > BUSY:
        return None, f"it was busy at rest already ({told})"
    return max(0.0, rises[least]), told


def _rise_of_host(plan: Plan, run_dir: Path, rest: Span, load: Span) -> Seen:
    """The rise of our own processes, in percent of a core for each rank: what others compute does not count."""
    busy = [percent for _, percent, _ in _host_samples(run_dir, rest) if percent is not None]
    shares = [_share(run_dir, span) for span in (rest, load)]
    if None in shares or not busy:
        return None, "the monitor has too few samples of the host's processors"
    if (others := exact_sum(busy) / len(busy)) > BUSY:
        return None, f"others kept {others:.0f} % of the host busy at rest already"
    before, under = (100.0 * (share or 0.0) / plan.topology.nproc for share in shares)
    return max(0.0, under - before), f"{before:.0f} to {under:.0f} % of a core for each rank"


def _share(run_dir: Path, span: Span) -> float | None:
    """Cores that our processes kept busy on node 0, from the first sample of the span to the last."""
    spent = [(t, seconds) for t, _, seconds in _host_samples(run_dir, span) if seconds is not None]
    if len(spent) < 2 or spent[-1][0] <= spent[0][0]:
        return None
    return max(0.0, spent[-1][1] - spent[0][1]) / (spent[-1][0] - spent[0][0])


def _host_samples(run_dir: Path, span: Span) -> Iterator[tuple[float, float | None, float | None]]:
    """(wall time, percent of all processors, processor seconds of our processes) of node 0, inside the span."""
    path = run_dir / _FILE
    for raw in path.read_bytes().splitlines() if is_plain_file(path) else ():
        try:
            line = pydantic_core.from_json(raw, allow_inf_nan=False)
        except ValueError:
            continue  # a torn line: a monitor never spoils a run
        t_wall = finite(line.get("t_wall")) if isinstance(line, dict) else None
        host = line.get("host") if isinstance(line, dict) else None
        if t_wall is not None and span[0] <= t_wall <= span[1] and isinstance(host, dict):
            yield t_wall, finite(host.get("cpu_percent")), finite(host.get("tree_cpu_s"))


def _means(run_dir: Path, key: str, spans: Spans) -> dict[str, float]:
    """Mean of each device's samples inside the span of its node."""
    found: dict[str, list[float]] = {}
    for name, (begin, end) in spans.items():
        for t_wall, device, sample in samples(run_dir / name):
            value = finite(sample.get(key))
            if value is not None and value >= 0 and begin <= t_wall <= end:
                found.setdefault(device if len(spans) == 1 else f"{name} {device}", []).append(value)
    return {device: exact_sum(values) / len(values) for device, values in found.items()}
