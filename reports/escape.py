"""Text from training, made safe to show: nothing in it can break XML, steer a terminal or flood a report."""

from __future__ import annotations

import re

# C0 and C1 controls but tab and newline, lone surrogates, and the two code points that XML forbids outright.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Direction marks reorder what a person reads on a terminal; in a file they are left as they are.
_REORDERING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` with every character that XML 1.0 forbids or a terminal obeys written out, as in `\\x1b`."""
    return _UNSAFE.sub(_spelled, text)


def for_terminal(text: str, encoding: str) -> str:
    """`text` as `encoding` can carry it, harmless to a terminal; what it cannot carry is written out."""
    harmless = _REORDERING.sub(_spelled, visible(text))
    return harmless.encode(encoding, "backslashreplace").decode(encoding)


def one_line(text: str) -> str:
    """`text` on one line, for messages and attributes."""
    return " ".join(text.split())


def capped(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8: its head and its tail, and between them how much was cut."""
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    mark = f"\n[... {len(data)} bytes, cut to {limit}; the whole text is in the run folder ...]\n"
    half = max((limit - len(mark)) // 2, 0)
    head, tail = data[:half], data[len(data) - half :]
    return head.decode("utf-8", "ignore") + mark[:limit] + tail.decode("utf-8", "ignore")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
