"""The text of a verdict for a terminal: all checks, the reason, the last log lines, the paths, the next command."""

from __future__ import annotations

from pathlib import Path

from suite.events import is_plain_file
from suite.log_tail import escaped, tail
from suite.result import CheckResult, Result

WORDS = {"pass": "ok", "fail": "MISS", "inconclusive": "?"}


def table(result: Result) -> str:
    """All checks, one a line, under a line that counts them as they are marked; each threshold with its source."""
    rows = [_row(check) for check in result.checks]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    lines = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0))).rstrip() for row in rows]
    return "\n".join([_head(result), *lines])


def failure_text(result: Result, folder: Path, rerun: str) -> str:
    """What a person needs after a verdict that is not `passed`, ending in the command to run next."""
    outcome = result.outcome
    word = f"{outcome.status}: {outcome.category}".rstrip(": ")
    lines = [table(result), "", escaped(f"{word}: {outcome.reason}")]
    run = next((run for run in result.runs if run.outcome.status != "passed"), None)
    place = folder / run.folder if run else folder
    rank = outcome.rank if outcome.rank is not None else 0
    log = place / "logs" / f"rank{rank}.log"
    last = [escaped(line) for line in outcome.log_tail] or (list(tail(log)) if run else [])
    if last:
        lines += ["", f"last lines of rank {rank}:", *(f"  | {line}" for line in last[-20:])]
    if is_plain_file(log):
        lines += ["", f"log: {log}"]
    return "\n".join([*lines, f"run: {folder}", f"rerun: {rerun}"])


def number(value: float | str | None, unit: str) -> str:
    """A value with its unit, four digits; a missing one is a dash."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{text} {unit}" if unit and unit not in ("fraction", "x") else text


def _head(result: Result) -> str:
    """`ID missed 1 of 5 targets, 2 are inconclusive (?)`: as many as there are rows of that mark, required or not."""
    status = [check.status for check in result.checks]
    missed, unknown = status.count("fail"), status.count("inconclusive")
    are = f"{'is' if unknown == 1 else 'are'} inconclusive ({WORDS['inconclusive']})"
    if missed:
        return f"{result.id} missed {missed} of {len(status)} targets" + (f", {unknown} {are}" if unknown else "")
    told = f"{result.id} {result.outcome.status}"
    return told + (f": {unknown} of {len(status)} targets {are}" if unknown else "")


def _row(check: CheckResult) -> tuple[str, str, str, str, str]:
    want = "" if check.threshold is None else f"want {check.op} {number(check.threshold, check.unit)}"
    why = check.reason if check.status == "inconclusive" else f"({check.source})" if check.source else ""
    return WORDS[check.status], check.name, number(check.value, check.unit), want, escaped(why)
