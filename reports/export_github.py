"""A session as Markdown for a job's summary page."""

from __future__ import annotations

from reports.json_report import SessionReport
from reports.markdown import code, rows, within
from reports.table import HEADERS, cells_of, summary
from suite.result import Result

MOST_BYTES = 1_000_000
"""A job's summary may hold one MiB."""


def as_github(report: SessionReport) -> str:
    """The table of the terminal, and the reason of each plan that did not pass."""
    lines = [f"### Trainmark: {summary(report.results)}", "", f"Session {code(report.session.id)}"]
    if report.session.command:
        lines.append(f"Run again: {code(report.session.command, 500)}")
    lines += ["", *rows(HEADERS, [[code(cell) for cell in cells_of(result)] for result in report.results]), ""]
    lines += [f"- {code(result.id)}: {code(_reason(result), 500)}" for result in report.results if _reason(result)]
    return within(lines, MOST_BYTES)


def _reason(result: Result) -> str:
    outcome = result.outcome
    parts = (outcome.status, outcome.category, outcome.reason)
    return "" if outcome.status == "passed" else ": ".join(part for part in parts if part)
