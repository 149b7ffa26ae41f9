"""The table at the end of a session, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.detectable import least_change
from reports.escape import one_line
from suite.result import CheckResult, Result

HEADERS = ("plan", "outcome", "quality", "time-to-train", "throughput", "speedup", "MFU")
SEEN = "~"
ABSENT = "-"
"""Stands for a number that is missing; never zero."""


def table(results: Sequence[Result]) -> str:
    """One row a result, its numbers against their thresholds, and under it a line for each that did not simply pass."""
    from tabulate import tabulate  # imported here: `pytest --help` and collection never need it

    rows = [cells_of(result) for result in results]
    lines = [tabulate(rows, headers=HEADERS, tablefmt="simple", disable_numparse=True)]
    notes = [note for result in results for note in _notes(result)]
    if any(SEEN in cell for row in rows for cell in row[1:]):
        notes.append(f"{SEEN}: the smallest change that so many runs of this spread can show, beside its threshold")
    return "\n".join([*lines, "", *notes] if notes else lines)


def summary(results: Sequence[Result]) -> str:
    """`2 passed, 1 failed`, in the order of severity; `no plan` where there is none."""
    counts = dict.fromkeys(("failed", "error", "passed", "inconclusive", "not_started"), 0)
    for result in results:
        counts[result.outcome.status] += 1
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no plan"


def cells_of(result: Result) -> tuple[str, ...]:
    """One row, as in HEADERS."""
    return (
        result.id,
        _outcome(result),
        _against(result, "quality"),
        _against(result, "time_to_train", "time_to_train_s"),
        _against(result, "throughput", "throughput_train"),
        _against(result, "speedup", "speedup"),
        _mfu(result),
    )


def _outcome(result: Result) -> str:
    outcome = result.outcome
    text = f"{outcome.status}: {outcome.category}" if outcome.category else outcome.status
    labels = [
        label for label, holds in (("open", result.division == "open"), ("log", result.evidence == "log")) if holds
    ]
    return f"{text} ({', '.join(labels)})" if labels else text


def _against(result: Result, name: str, metric: str = "") -> str:
    """The value of the check `name` (else of `metric`) against its threshold: `0.79 >= 0.8 MISS`."""
    check = next((check for check in result.checks if check.name == name), None)
    if check is not None and check.value is not None:
        value, unit = check.value, check.unit
    elif metric in result.metrics:
        value, unit = result.metrics[metric].value, result.metrics[metric].unit
    else:
        return ABSENT
    text = f"{_number(value)} {_short(unit)}".rstrip()
    if check is None or check.threshold is None:
        return text
    least = least_change(result, check)
    seen = f" {SEEN}{100 * least:.2g} %" if least is not None else ""
    return f"{text} {check.op} {_number(check.threshold)}{seen}{_mark(check)}"


def _mark(check: CheckResult) -> str:
    return {"pass": "", "fail": " MISS", "inconclusive": " ?"}[check.status]


def _mfu(result: Result) -> str:
    metric = result.metrics.get("mfu")
    return ABSENT if metric is None else f"{100 * metric.value:.1f} %"


def _notes(result: Result) -> Iterator[str]:
    outcome = result.outcome
    if outcome.status != "passed":
        yield one_line(f"{result.id}: {outcome.status}: {outcome.category}: {outcome.reason}")
    shown = outcome.reason
    for check in result.checks:
        if check.status == "fail" and check.reason and check.reason not in shown:
            yield one_line(f"{result.id}: missed {check.name}: {check.reason}")
    if result.division == "open":
        reasons = "; ".join(result.division_reasons) or "no reason was recorded"
        yield one_line(f"{result.id}: division open, can never gate: {reasons}")
    if not result.verified:
        yield one_line(
            f"{result.id}: the vendor's folder {result.vendor!r} was never run on the chip (verified = false)"
        )


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _short(unit: str) -> str:
    return "" if unit in ("fraction", "ratio", "1") else unit
