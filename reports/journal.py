"""journal-<process>.jsonl: what each process announced, line by line, readable after any crash."""

from __future__ import annotations

import heapq
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from reports.escape import visible
from reports.records import KINDS, RECORDS, AnyRecord

SCHEMA = 1

_LATEST = 1e12
"""Seconds of the epoch that no clock will tell."""


class Entry(NamedTuple):
    """One record, with when and by which process it was told."""

    t_wall: float
    worker: str
    record: AnyRecord


class Journal(NamedTuple):
    """All processes' entries in order of time, and a sentence for each line that could not be read."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...]


def encode(record: Mapping[str, object], worker: str) -> bytes:
    """`record` as one line of a journal, whatever it holds."""
    line = {"schema": SCHEMA, "t_wall": time.time(), "worker": worker, "record": plain(record)}
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def plain(value: object) -> object:
    """`value` as strict JSON: numbers that are not finite and unknown types become text, text becomes encodable."""
    if isinstance(value, str):
        # Only what UTF-8 cannot carry is spelt out here: the journal is evidence, and JSON escapes controls itself.
        return value if _encodable(value) else visible(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(plain(str(key))): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | os.PathLike):
        return [plain(item) for item in value]
    return plain(str(value))


class JournalWriter:
    """Appends to this process's own journal; one `write` call a line, so that a crash tears the last one at most."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"journal-{worker}.jsonl"
        self._torn = False

    def append(self, line: bytes, *, durable: bool) -> None:
        """Append `line`; `durable`: survive a power failure too. Raises OSError; the line may then be torn."""
        data = b"\n" + line if self._torn else line
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        try:
            written = os.write(descriptor, data)
            self._torn = written < len(data)
            if self._torn:
                raise OSError(f"{self.path}: only {written} of {len(data)} bytes fitted; free space on that disk")
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_journals(folder: Path, unwritten: Sequence[bytes] = ()) -> Journal:
    """Every process's entries under `folder`, and lines that never reached the disk, merged by wall time."""
    problems: list[str] = []
    streams = []
    for path in sorted(folder.glob("journal-*.jsonl")):
        if not path.is_file():  # whoever opens a pipe waits for ever
            problems.append(f"{path}: not a regular file; its records are missing from the report")
            continue
        try:
            data = path.read_bytes()
        except OSError as error:
            problems.append(f"{path}: {error.strerror}; its records are missing from the report")
            continue
        streams.append(list(_entries(path.name, data, problems)))
    streams.append(list(_entries("records in memory", b"".join(unwritten), problems)))
    merged = heapq.merge(*(_in_order(stream) for stream in streams), key=lambda pair: pair[0])
    return Journal(tuple(entry for _, entry in merged), tuple(problems))


def _entries(name: str, data: bytes, problems: list[str]) -> Iterator[Entry]:
    *lines, torn = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            entry = _entry(line) if line else None
        except (ValueError, RecursionError) as error:
            problems.append(f"{name}:{number}: not a record of a journal, passed over ({_first_line(error)})")
            continue
        if entry is not None:
            yield entry
    # A process that was killed while it wrote leaves half a line: that record was never told.
    if torn:
        try:
            entry = _entry(torn)
        except (ValueError, RecursionError):
            return
        if entry is not None:
            yield entry


def _entry(line: bytes) -> Entry | None:
    """The entry on `line`; None: of a kind that a later version added. Raises ValueError."""
    data = json.loads(line)
    if not isinstance(data, dict) or not isinstance(data.get("record"), dict):
        raise ValueError("no record in it")
    t_wall, worker, record = data.get("t_wall"), data.get("worker"), data["record"]
    if isinstance(t_wall, bool) or not isinstance(t_wall, int | float) or not isinstance(worker, str):
        raise ValueError("no t_wall or no worker in it")
    if record.get("kind") not in KINDS:
        return None
    if not abs(t_wall) < _LATEST:
        raise ValueError("its t_wall is no time")
    return Entry(float(t_wall), worker, RECORDS.validate_python(record))


def _in_order(entries: Sequence[Entry]) -> Iterator[tuple[float, Entry]]:
    """Entries of one process under a clock that never goes back, whatever the host's clock did."""
    latest = -math.inf
    for entry in entries:
        latest = max(latest, entry.t_wall)
        yield latest, entry


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error).partition("\n")[0]


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
