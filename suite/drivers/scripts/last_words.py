"""What a script said last: why it ended, in its own words. Standard library only, Python 3.8."""

from __future__ import annotations

import re
from typing import List

from suite.drivers.scripts.adapters.text import clean

MOST_BYTES = 64 << 10
"""Of the end of the output; what lies before it is long over."""

MOST_CHARACTERS = 500

_TRACEBACK = "Traceback (most recent call last):"
_BAR = re.compile(r"\d+%\||\d+it \[")


class LastWords:
    """Keeps the end of an output, however it was cut."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> None:
        """What arrived."""
        self._kept = (self._kept + data)[-MOST_BYTES:]

    def said(self) -> str:
        """The exception of the last traceback, else the last line that is no progress bar; empty: nothing was said."""
        text = self._kept.decode("utf-8", "replace").replace("\r\n", "\n")
        lines = [clean(piece).rstrip() for line in text.split("\n") for piece in line.split("\r")]
        return (_exception(lines) or _last(lines))[:MOST_CHARACTERS]


def _exception(lines: List[str]) -> str:
    """The line behind the frames, which are indented; a notebook's or a launcher's prefix stays what it is."""
    begun = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not begun:
        return ""
    prefix = lines[begun[-1]][: -len(_TRACEBACK)]
    for line in lines[begun[-1] + 1 :]:
        told = line[len(prefix) :] if line.startswith(prefix) else line
        if told and not told[0].isspace():
            return told
    return ""


def _last(lines: List[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip() and not _BAR.search(line)), "")
