"""Reads events/rank<R>.jsonl strictly: a torn last line is tolerated, any other bad line is an error with file:line."""

from __future__ import annotations

import math
import os
import stat
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pydantic_core

from suite.rounding import exact_sum

NAMES = frozenset(
    (
        *("header", "init_start", "init_stop", "run_start", "epoch_start", "epoch_stop", "steps", "run_stop"),
        *("eval_start", "eval_stop", "eval_result", "checkpoint_start", "checkpoint_stop", "memory", "checksum"),
        *("heartbeat", "warning", "finding", "capability"),
    )
)
"""Every event of schema 1."""

MAX_LINE = 64 << 20
"""Bytes of one line. Events come from code under test: a line without an end must not eat the memory of the judge."""

MAX_T = 1e12
"""Seconds. No clock reads thirty thousand years; sums and differences of such times stay finite."""


class BadEvents(Exception):
    """A stream that cannot be trusted. `str()` is one sentence that begins with file:line."""


class Event:
    """One line, typed on access: a wrong type raises BadEvents naming file, line and key."""

    __slots__ = ("data", "line", "name", "path", "t")

    def __init__(self, path: Path, line: int, name: str, t: float, data: Mapping[str, object]) -> None:
        self.path = path
        self.line = line
        self.name = name
        self.t = t
        self.data = data

    def bad(self, sentence: str) -> BadEvents:
        """The error of this line."""
        return BadEvents(f"events/{self.path.name}:{self.line}: {self.name}: {sentence}")

    def has(self, key: str) -> bool:
        """Present and not null."""
        return self.data.get(key) is not None

    def number(self, key: str) -> float:
        """A finite number, never negative."""
        value = finite(self.data.get(key))
        if value is None or value < 0:
            raise self.bad(f"{key} is {shown(self.data.get(key))}, not a number >= 0")
        return value

    def count(self, key: str) -> int:
        """A whole number, never negative."""
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise self.bad(f"{key} is {shown(value)}, not a whole number >= 0")
        return value

    def text(self, key: str) -> str:
        """A string; absent is empty."""
        value = self.data.get(key, "")
        if not isinstance(value, str):
            raise self.bad(f"{key} is {shown(value)}, not a string")
        return value

    def series(self, key: str) -> array[float]:
        """A list of finite numbers, none negative; absent is empty."""
        value = self.data.get(key, ())
        try:
            if not isinstance(value, list | tuple):
                raise TypeError
            numbers = array("d", value)
        except (TypeError, OverflowError):
            raise self.bad(f"{key} is not a list of numbers") from None
        if numbers and not (min(numbers) >= 0 and math.isfinite(exact_sum(numbers))):
            raise self.bad(f"{key} holds a number that is negative or not finite")
        return numbers

    def table(self, key: str) -> Mapping[str, object]:
        """An object; absent or null is empty."""
        value = self.data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.bad(f"{key} is {shown(value)}, not an object")
        return value


def finite(value: object) -> float | None:
    """`value` as a finite float; None for anything else, a bool and a string included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def shown(value: object) -> str:
    """A value for a sentence, short and on one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_plain_file(path: Path) -> bool:
    """A regular file, not a link, pipe or device that code under test has put in its place."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read_events(path: Path) -> Iterator[Event]:
    """Stream the events of one rank in order. Raises BadEvents at the first bad line, an unreadable file included."""
    where = f"events/{path.name}"
    if not is_plain_file(path):
        raise BadEvents(f"{where}: no such file")
    last = -math.inf
    number = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(_lines(file, where), 1):
                event = _parse(path, number, raw)
                if event is None:
                    return
                if number == 1 and event.name != "header":
                    raise BadEvents(f"{where}:1: the first line is {event.name}, not the header")
                if number > 1 and event.name == "header":
                    raise event.bad("a second header")
                if event.t < last:
                    raise event.bad(f"t goes back from {last} to {event.t}")
                last = event.t
                yield event
    except OSError as problem:
        raise BadEvents(f"{where}:{number + 1}: {problem.strerror}") from None


def has_begun(path: Path) -> bool:
    """Whether there is anything to read: a whole line, be it good or bad, or something else in the file's place."""
    if not is_plain_file(path):
        return os.path.lexists(path)
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_LINE + 1)
    except OSError:
        return True
    return line.endswith(b"\n") or len(line) > MAX_LINE


def _lines(file: BinaryIO, where: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise BadEvents(f"{where}:{number}: a line of more than {MAX_LINE >> 20} MiB")
        yield line


def _parse(path: Path, number: int, raw: bytes) -> Event | None:
    """The event of one line; None for a torn line, which only a file's end can leave: it lacks its newline."""
    where = f"events/{path.name}:{number}"
    try:
        data = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as problem:
        if not raw.endswith(b"\n"):
            return None
        raise BadEvents(f"{where}: not strict JSON: {problem}") from None
    if not isinstance(data, dict):
        raise BadEvents(f"{where}: not an object")
    name = data.get("event")
    if not isinstance(name, str) or name not in NAMES:
        raise BadEvents(f"{where}: {shown(name)} is not the name of an event")
    # The header's clock reading has a name of its own.
    t = finite(data.get("t", data.get("t_mono") if name == "header" else None))
    if t is None or not -MAX_T < t < MAX_T:
        raise BadEvents(f"{where}: {name} has no time t")
    return Event(path, number, name, t, data)
