"""Beside a threshold: the smallest change that so many runs of this spread can show."""

from __future__ import annotations

from reports import statistics
from suite.result import CheckResult, Result

UNJUDGED = frozenset({"quality", "ranks_in_sync", "ledger", "requality", "too_good", "too_slow"})
"""Checks whose threshold no spread of speed is held against."""


def least_change(result: Result, check: CheckResult) -> float | None:
    """As a share; None: no threshold, no such metric, or runs that can show nothing."""
    metric = result.metrics.get(check.metric)
    if check.threshold is None or metric is None or check.name in UNJUDGED:
        return None
    return statistics.detectable(metric.values, metric.values)


def sentences(result: Result) -> list[str]:
    """For every judged threshold, what the spread of the runs lets it see."""
    found = []
    for check in result.checks:
        metric = result.metrics.get(check.metric)
        if check.threshold is None or metric is None or check.name in UNJUDGED:
            continue
        least = least_change(result, check)
        seen = f"changes from {100 * least:.2g} % on can be seen" if least is not None else "no change can be seen"
        runs = "1 run" if len(metric.values) == 1 else f"{len(metric.values)} runs"
        found.append(f"{check.name} {check.op} {check.threshold:.6g}: {seen} with {runs}")
    return found
