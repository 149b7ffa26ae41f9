"""Holds MLPerf log files to stricter rules than the official checker, which lets much of this pass (docs/ci.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from reports.mllog import TOKEN
from suite.errors import UsageProblem

ONCE = (
    "submission_benchmark", "submission_division", "global_batch_size", "train_samples", "eval_samples", "init_start",
    "init_stop", "run_start", "run_stop",
)  # fmt: skip
ORDER = ("init_start", "init_stop", "run_start", "run_stop")
PAIRS = {"block_start": "block_stop", "epoch_start": "epoch_stop", "eval_start": "eval_stop"}
KINDS = frozenset({"INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"})
INIT_LIMIT_MS = {"closed": 30 * 60_000, "open": 240 * 60_000}
MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One sound line."""

    number: int
    key: str
    value: object
    time_ms: int
    metadata: Mapping[str, object]


def check_files(paths: Sequence[Path]) -> list[str]:
    """A sentence for each thing that is wrong in the logs of one set of runs; empty: nothing. Raises UsageProblem."""
    problems: list[str] = []
    seeds: dict[str, Path] = {}
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):  # whoever opens a pipe waits for ever
            raise UsageProblem(f"{path}: not a regular file; name a log file")
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise UsageProblem(f"{path}: cannot be read ({error.strerror}); name a log file") from None
        entries, found = parse(text)
        found += check(entries)
        problems += [f"{path.name}{problem}" for problem in found]
        for entry in entries:
            if entry.key == "seed" and seeds.setdefault(repr(entry.value), path) != path:
                problems.append(f"{path.name}: seed {entry.value} is that of {seeds[repr(entry.value)].name} too")
    return problems


def parse(text: str) -> tuple[list[Entry], list[str]]:
    """The entries of a log, and a sentence for each line that bears the token and is none."""
    entries, problems = [], []
    for number, line in enumerate(text.split("\n"), 1):
        _, token, rest = line.partition(TOKEN.strip())
        if not token:
            continue
        try:
            entries.append(_entry(number, json.loads(rest, parse_constant=_refuse)))
        except (ValueError, RecursionError) as problem:
            problems.append(f":{number}: {str(problem).partition(chr(10))[0]}")
    return entries, problems


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON knows")


def _entry(number: int, data: object) -> Entry:
    """Raises ValueError for anything that is not exactly an entry."""
    if not isinstance(data, dict):
        raise ValueError("not an object")
    key, time_ms, metadata = data.get("key"), data.get("time_ms"), data.get("metadata")
    if not isinstance(key, str) or not key:
        raise ValueError("no key")
    if isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0:
        raise ValueError(f"{key}: time_ms is {time_ms!r}, not whole milliseconds")
    if data.get("event_type") not in KINDS:
        raise ValueError(f"{key}: event_type is {data.get('event_type')!r}")
    if not isinstance(metadata, dict) or "value" not in data:
        raise ValueError(f"{key}: no metadata or no value")
    return Entry(number, key, data["value"], time_ms, metadata)


def check(entries: Sequence[Entry]) -> list[str]:
    """Every rule, on the entries of one run."""
    rules = (_counts, _clock, _preparation, _seed, _end, _pairs, _evaluations)
    return [problem for rule in rules for problem in rule(entries)]


def _first(entries: Sequence[Entry], key: str) -> Entry | None:
    return next((entry for entry in entries if entry.key == key), None)


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    for key in ONCE:
        count = sum(entry.key == key for entry in entries)
        if count != 1:
            yield f": {key} stands there {count} times, not once"


def _clock(entries: Sequence[Entry]) -> Iterator[str]:
    """Lines follow time, phases follow each other, and building the model keeps to its limit."""
    latest = -1
    for entry in entries:
        if entry.time_ms < latest:
            yield f":{entry.number}: {entry.key}: the clock goes back by {latest - entry.time_ms} ms"
        latest = max(latest, entry.time_ms)
    marks = [mark for key in ORDER if (mark := _first(entries, key)) is not None]
    for before, after in pairwise(marks):
        if after.number < before.number:
            yield f":{after.number}: {after.key} stands before {before.key}"
    first, last = _first(entries, "run_start"), _first(entries, "run_stop")
    if first and last and last.time_ms <= first.time_ms:
        yield f":{last.number}: run_stop is not later than run_start"


def _preparation(entries: Sequence[Entry]) -> Iterator[str]:
    """Building the model keeps to the limit of its division."""
    first, last, division = (_first(entries, key) for key in ("init_start", "init_stop", "submission_division"))
    limit = INIT_LIMIT_MS.get(str(division.value) if division else "", INIT_LIMIT_MS["closed"])
    if first and last and last.time_ms - first.time_ms > limit:
        yield f":{last.number}: init_stop comes {(last.time_ms - first.time_ms) / 60_000:.3g} minutes after init_start"


def _seed(entries: Sequence[Entry]) -> Iterator[str]:
    seeds = [entry for entry in entries if entry.key == "seed"]
    if not seeds:
        yield ": no seed"
    for entry in seeds:
        if isinstance(entry.value, bool) or not isinstance(entry.value, int):
            yield f":{entry.number}: seed is {entry.value!r}, not a whole number"


def _end(entries: Sequence[Entry]) -> Iterator[str]:
    stop = _first(entries, "run_stop")
    if stop is not None and stop.metadata.get("status") != "success":
        yield f":{stop.number}: run_stop with status {stop.metadata.get('status')!r}: the run did not reach its target"


def _pairs(entries: Sequence[Entry]) -> Iterator[str]:
    """What starts ends, once, before it starts again; something is trained in blocks or epochs."""
    opened: dict[str, Entry] = {}
    ends = {end: begin for begin, end in PAIRS.items()}
    for entry in entries:
        if entry.key in PAIRS:
            if entry.key in opened:
                yield f":{entry.number}: {entry.key} again, before {PAIRS[entry.key]}"
            opened[entry.key] = entry
        elif entry.key in ends and opened.pop(ends[entry.key], None) is None:
            yield f":{entry.number}: {entry.key} without {ends[entry.key]}"
    for entry in opened.values():
        yield f":{entry.number}: {entry.key} without {PAIRS[entry.key]}"
    if not any(entry.key in ("block_start", "epoch_start") for entry in entries):
        yield ": no block and no epoch"


def _evaluations(entries: Sequence[Entry]) -> Iterator[str]:
    """Each inside eval_start and eval_stop, a finite number, further on than the one before."""
    inside, seen, progress = False, 0, -1.0
    for entry in entries:
        inside = entry.key == "eval_start" or (inside and entry.key != "eval_stop")
        if entry.key != "eval_accuracy":
            continue
        seen += 1
        if not inside:
            yield f":{entry.number}: eval_accuracy outside of eval_start and eval_stop"
        value = entry.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            yield f":{entry.number}: eval_accuracy is {value!r}, not a finite number"
        done = entry.metadata.get("samples_count", entry.metadata.get("epoch_num"))
        if isinstance(done, bool) or not isinstance(done, int | float) or done <= progress:
            yield f":{entry.number}: eval_accuracy at {done!r}, not further on than {progress:g}"
        else:
            progress = done
    if not seen:
        yield ": no eval_accuracy"
