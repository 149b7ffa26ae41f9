"""Bytes of a log as lines of text, and the numbers in them. Standard library only."""

from __future__ import annotations

import codecs
import math
import re
from typing import List, Optional

MOST_HELD = 1 << 20
"""Characters of one line that are kept while its end is awaited: a log without line ends must not eat the memory."""

# Colours and moves of the cursor, titles of windows, and every control character but tabulators and ends of lines.
_CONTROLS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[@-Z\\\\^_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")
_CLOCK = re.compile(r"(?:(\d+) days?, )?(?:(\d+):)?(\d{1,2}):(\d{2})")


class Lines:
    """Cuts a stream of bytes into lines: the same ones however the stream was cut before.

    Empty lines are left out. Bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, ends: str = "\r\n") -> None:
        """`ends`: the characters that end a line."""
        self._ends = re.compile(f"[{ends}]")
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> List[str]:
        """The lines that are complete by now."""
        *done, self._rest = self._ends.split(self._rest + self._decode(data))
        if len(self._rest) > MOST_HELD:
            self._rest = self._rest[-MOST_HELD:]
        return [line for line in map(clean, done) if line.strip()]

    def begun(self) -> str:
        """The line whose end is awaited. A progress bar is one for as long as its step lasts."""
        return clean(self._rest)

    def finish(self) -> List[str]:
        """The last line, though it has no end."""
        rest, self._rest = clean(self._rest + self._decode(b"", True)), ""
        return [rest] if rest.strip() else []


def clean(line: str) -> str:
    """The line without what only moves a cursor or colours a terminal."""
    return _CONTROLS.sub("", line)


def whole_number(text: str) -> Optional[int]:
    """`15,406` or `960`; None for anything else, a torn group of digits included."""
    text = text.strip()
    return int(text.replace(",", "")) if _GROUPED.fullmatch(text) and len(text) < 25 else None


def number(text: str) -> Optional[float]:
    """A number as Python writes it, quoted or not, `nan` and `inf` included; None for anything else."""
    text = text.strip().strip("'\"")
    if not re.fullmatch(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)", text):
        return None
    return float(text)


def finite(text: str) -> Optional[float]:
    """As `number`, but None for what is not finite."""
    value = number(text)
    return value if value is not None and math.isfinite(value) else None


def clock_seconds(text: str) -> Optional[float]:
    """`27:08`, `37:16:04` or `1 day, 2:03:04` in seconds; None for anything else."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
