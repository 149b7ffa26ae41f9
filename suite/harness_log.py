"""Reads what the harness wrote about a run or a plan: harness.jsonl, exits/, run.json, environment.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pydantic_core

from suite.events import finite, is_plain_file
from suite.outcome import Outcome

Json = Mapping[str, object]

MAX_BYTES = 256 << 20


@dataclass(slots=True)
class HarnessLog:
    """harness.jsonl of a run or a plan."""

    ended: Outcome | None = None
    phases: dict[str, float] = field(default_factory=dict)
    witness_s: tuple[float, float] | None = None
    """The least and the most that passed between rank 0's header and its run_stop, on the harness's clock."""
    seals: dict[str, str] = field(default_factory=dict)
    """sha256 of each stream by its file's name, taken by the harness when the run had ended."""
    settled: Outcome | None = None
    base: Json | None = None
    bad_line: str = ""
    """The first line that is no JSON object, other than a torn last one."""


def read_harness(folder: Path) -> HarnessLog:
    """The log in `folder`; an absent file is an empty log. Later lines win, phases of one name add up."""
    log = HarnessLog()
    for number, line in _lines(folder / "harness.jsonl"):
        if line is None:
            log.bad_line = log.bad_line or f"harness.jsonl:{number}: not a JSON object"
            continue
        name = line.get("event")
        seconds = finite(line.get("seconds"))
        if name == "phase" and isinstance(line.get("name"), str) and seconds is not None and seconds >= 0:
            phase = str(line["name"])
            log.phases[phase] = log.phases.get(phase, 0.0) + seconds
        elif name == "witness":
            log.witness_s = _span(line)
            events = line.get("events")
            log.seals = {str(name): str(seal) for name, seal in events.items()} if isinstance(events, dict) else {}
        elif name == "ended":
            log.ended = _outcome(line)
        elif name == "settled":
            outcome = line.get("outcome")
            log.settled = _outcome(outcome if isinstance(outcome, dict) else {})
        elif name == "base":
            log.base = line
    return log


def read_object(path: Path) -> Json:
    """The JSON object in a file; empty where there is none that can be read."""
    if not is_plain_file(path):
        return {}
    try:
        data = pydantic_core.from_json(path.read_bytes(), allow_inf_nan=False)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def bad_exit(run_dir: Path, world_size: int) -> tuple[int, str] | None:
    """The first rank whose exit record is absent or says something other than a clean end, with the sentence."""
    for rank in range(world_size):
        record = read_object(run_dir / "exits" / f"rank{rank}.json")
        if record.get("rank") != rank:
            return rank, f"exits/rank{rank}.json: no record of how rank {rank} ended"
        if record.get("signal"):
            return rank, f"rank {rank} was ended by signal {record['signal']}"
        if record.get("returncode") != 0:
            return rank, f"rank {rank} left with status {record.get('returncode')}"
    return None


def _outcome(line: Json) -> Outcome:
    """The Outcome among the keys of `line`; one that cannot be read is an error of the harness, never a pass."""
    keys = {key: line[key] for key in ("status", "category", "reason", "rank", "log_tail") if line.get(key) is not None}
    try:
        return Outcome.model_validate(keys)
    except ValueError:
        return Outcome(status="error", category="harness", reason="harness.jsonl: an outcome outside the taxonomy")


def _span(line: Json) -> tuple[float, float] | None:
    """`span_s` of a witness line; where it is no interval, `wall_s` is the most."""
    told = line.get("span_s")
    least, most = map(finite, told) if isinstance(told, list) and len(told) == 2 else (None, None)
    if least is None or most is None or not 0 <= least <= most:
        least, most = 0.0, finite(line.get("wall_s"))
    return None if most is None else (least, most)


def _lines(path: Path) -> Iterator[tuple[int, Json | None]]:
    """Numbered objects of a JSON Lines file; None for a bad line. A torn last line is left out."""
    if not is_plain_file(path):
        return
    try:
        raw = path.read_bytes()[:MAX_BYTES].split(b"\n")
    except OSError:
        return
    for number, line in enumerate(raw, 1):
        if not line.strip():
            continue
        try:
            data = pydantic_core.from_json(line, allow_inf_nan=False)
        except ValueError:
            if number < len(raw):
                yield number, None
            continue
        yield number, data if isinstance(data, dict) else None
