"""A session for spreadsheets (CSV) and for a metrics server (OpenMetrics text)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from reports.escape import one_line, visible
from reports.json_report import SessionReport
from suite.metrics import METRICS
from suite.result import Result

COLUMNS = (
    "session", "started", "commit", "plan", "model", "framework", "vendor", "machine", "topology", "preset", "mode",
    "division", "outcome", "category", "run", "seed", "metric", "value", "unit",
)  # fmt: skip

_LABELS = ("model", "framework", "vendor", "machine", "topology", "preset", "mode", "division")


def as_csv(report: SessionReport) -> str:
    """One line for each metric of each run; a plan without any number has one line, its metric left empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    session = report.session
    for result in report.results:
        facts = [session.id, session.started or "", session.git.commit or "", result.id, *_facts(result)]
        facts += [result.outcome.status, result.outcome.category]
        for numbers in list(_numbers(result)) or [("", "", "", "", "")]:
            writer.writerow([_cell(value) for value in (*facts, *numbers)])
    return text.getvalue()


def _numbers(result: Result) -> Iterator[tuple[object, ...]]:
    for run in result.runs:
        for name, value in run.metrics.items():
            unit = result.metrics[name].unit if name in result.metrics else ""
            yield (run.n, run.seed, name, value, unit)


def _cell(value: object) -> str:
    """Text that no spreadsheet takes for a formula; a number as Python writes it, to the last digit."""
    if isinstance(value, int | float):
        return repr(value)
    text = one_line(visible(str(value)))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _facts(result: Result) -> list[str]:
    return [str(getattr(result, name)) for name in _LABELS]


def as_openmetrics(report: SessionReport) -> str:
    """Gauges for a scrape or a push: one family a metric, and the outcome of each plan. Medians over the runs."""
    families: dict[str, list[str]] = {}
    for result in report.results:
        labels = _labels([("plan", result.id), *zip(_LABELS, _facts(result))])
        for name, metric in result.metrics.items():
            families.setdefault(_family(name), []).append(f"{_family(name)}{{{labels}}} {metric.value!r}")
    lines = [line for family in sorted(families) for line in (*_head(family), *families[family])]
    lines += ["# TYPE trainmark_outcome gauge", "# HELP trainmark_outcome 1: how the plan ended"]
    for result in report.results:
        told = [("plan", result.id), ("status", result.outcome.status), ("category", result.outcome.category)]
        lines.append(f"trainmark_outcome{{{_labels(told)}}} 1")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _head(family: str) -> tuple[str, str]:
    known = METRICS.get(family.removeprefix("trainmark_"))
    return (f"# TYPE {family} gauge", f"# HELP {family} {known.description if known else 'declared by the case'}")


def _family(name: str) -> str:
    # A case may name its own metric as it likes; a metrics server may not be told so.
    return "trainmark_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    escaped = [(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in pairs]
    return ",".join(f'{name}="{visible(value)}"' for name, value in escaped)
