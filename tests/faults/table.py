"""The fault table: rows as the tests record them, and the page: `python -m tests.faults.table > docs/faults.md`."""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.fault import Row
from tests.faults.registry import FAULTS, GROUPS

RECORDED = Path(__file__).with_name("recorded.json")

RECORD = "FAULTS_RECORD"
"""Environment variable that has the tests record their rows, into the file that it names."""

HEAD = """# Faults

What goes wrong, and what comes of it. Every row was brought about by `pytest tests -k faults_played`: a real session of
`pytest suite` in a temporary checkout, with real agents, leases, monitors and reports, whose training, devices and
(where no row says torchrun) launcher are the fakes of the fault kit. Repeat one with

    python -m tests.faults NAME

and record all of them anew with

    FAULTS_RECORD=tests/faults/recorded.json pytest tests -k faults_played -n 2
    python -m tests.faults.table > docs/faults.md

*Verdict* is the time from the injection (without one: from the start of pytest) to the plan's outcome in the journal,
or to pytest's end where there is none. *Left* is what was there ten seconds after pytest's end: processes that carry
the session's mark or told their pid, held locks of devices and ports, open ports; in brackets the time until
nothing was.

The kit is public: `pytest_plugins = ("fixtures.testing",)` gives `toy_checkout` and `faulty_run` to the tests of
another project, a vendor's adapter for one. What the fake training can do is listed in `misbehaviour.py` and
`damage.py` of `fixtures/faults`. The invented vendors are `basalt` (shared, no tool), `quill` (exclusive, with words
of its own for its faults), `zephyr` (with a management library) and `cinder` (with a command line tool).
"""

COLUMNS = "| fault | injected | outcome | verdict | left |\n|---|---|---|---|---|"


def record(row: Row, path: Path) -> None:
    """Put `row` among the recorded ones, in the order of the registry; safe between processes."""
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows = {line["name"]: line for line in json.loads(file.read() or "[]")}
        rows[row.name] = asdict(row)
        kept = [rows[name] for name in FAULTS if name in rows]
        file.seek(0)
        file.truncate()
        file.write(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def recorded(path: Path = RECORDED) -> dict[str, Mapping[str, Any]]:
    """The recorded rows by name."""
    return {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))}


def page(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/faults.md."""
    parts = [HEAD]
    for title, faults in GROUPS.items():
        lines = [_line(rows[fault.name], fault.what) for fault in faults if fault.name in rows]
        if lines:
            parts.append("\n".join([f"## {title}\n", COLUMNS, *lines]) + "\n")
    return "\n".join(parts)


def _line(row: Mapping[str, Any], what: str) -> str:
    injected = "<br>".join(_injection(line) for line in row["injected"][:3]) or _cell(row["command"])
    rank = f", rank {row['rank']}" if row["rank"] is not None else ""
    attempts = f", {row['attempts']} attempts" if row["attempts"] > 1 else ""
    outcome = f"**{row['outcome']}**{rank}{attempts}, exit {row['exit']}"
    reason = f": {_cell(row['reason'][:160])}" if row["reason"] else ""
    left = "; ".join(row["left"]) or f"nothing ({row['gone_s']:.1f} s)"
    return f"| {what}<br>`{row['name']}` | {injected} | {outcome}{reason} | {row['verdict_s']:.1f} s | {left} |"


def _injection(line: Mapping[str, Any]) -> str:
    when = datetime.fromtimestamp(line["t_wall"], UTC)
    stamp = f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}"
    return f"{_cell(line['what'])}, pid {line['pid']} on {line['host']}, {stamp}"


def _cell(text: str) -> str:
    """As code, on one line of a table."""
    return "`" + " ".join(text.split()).replace("|", "\\|").replace("`", "'") + "`"


if __name__ == "__main__":
    sys.stdout.write(page(recorded()))
