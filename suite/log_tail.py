"""The last lines of a log, safe to print: whatever a rank wrote, nothing of it reaches a terminal as a command."""

from __future__ import annotations

from pathlib import Path

from suite.events import is_plain_file

LINES = 20
MAX_BYTES = 64 << 10
MAX_WIDTH = 500


def escaped(text: str) -> str:
    """`text` with every control character and every unprintable one written out, as in `\\x1b`."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape", "replace").decode() for c in text)


def log_tail(run_dir: Path, rank: int | None) -> tuple[str, ...]:
    """The last LINES lines of the rank's log, or of the first node's where the rank wrote none; empty without a log."""
    names = [f"rank{rank}.log"] if rank is not None else []
    for name in [*names, "node0.log", "rank0.log"]:
        lines = tail(run_dir / "logs" / name)
        if lines:
            return lines
    return ()


def tail(path: Path) -> tuple[str, ...]:
    """The last LINES lines of a file, escaped; empty if there is none."""
    if not is_plain_file(path):
        return ()
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - MAX_BYTES, 0))
            raw = file.read(MAX_BYTES)
    except OSError:
        return ()
    lines = raw.decode("utf-8", "replace").split("\n")
    # A carriage return overwrites the line on a terminal; what the rank last showed is what counts.
    shown = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return tuple(escaped(line[:MAX_WIDTH]) for line in shown[-LINES:])
