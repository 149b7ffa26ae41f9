"""A session as pytest-benchmark's JSON, so that `pytest-benchmark compare` works on training runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean, median, quantiles, stdev

from reports.json_report import SessionReport
from suite.result import Result
from suite.rounding import exact_sum

TIMED = ("step_time_median_s", "time_to_train_s")
"""What is compared: seconds, one round a run. Rates have no place there, as less would count as better."""


def as_benchmark_json(report: SessionReport) -> str:
    """Every plan's step time and time-to-train as a benchmark of its own, its runs as rounds."""
    session = report.session
    benchmarks = [_benchmark(result, name) for result in report.results for name in TIMED if _seconds(result, name)]
    document = {
        "machine_info": _machine(report.results),
        "commit_info": {"id": session.git.commit or "unknown", "dirty": bool(session.git.dirty)},
        "benchmarks": benchmarks,
        "datetime": session.finished or session.started or "",
        "version": "5.0.0",
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _seconds(result: Result, name: str) -> tuple[float, ...]:
    metric = result.metrics.get(name)
    return metric.values if metric is not None else ()


def _benchmark(result: Result, name: str) -> Mapping[str, object]:
    # Matching goes by this name alone, hence the same one in every session.
    full = f"{result.id}[{name}]"
    extra = {"outcome": result.outcome.status, "division": result.division, "fingerprint": result.comparability_key}
    options = {
        "disable_gc": False, "timer": "trainmark", "min_rounds": 1, "max_time": 0.0, "min_time": 0.0, "warmup": False,
    }  # fmt: skip
    return {
        "group": name, "name": full, "fullname": full, "params": None, "param": None, "extra_info": extra,
        "options": options, "stats": _stats(_seconds(result, name)),
    }  # fmt: skip


def _stats(data: Sequence[float]) -> Mapping[str, object]:
    """The fields that the compare table reads. One round has no spread: 0 is that tool's own word for it."""
    mean, low, high = fmean(data), min(data), max(data)
    q1, _, q3 = quantiles(data, n=4, method="inclusive") if len(data) > 1 else (low, low, low)
    spread, width = (stdev(data) if len(data) > 1 else 0.0), q3 - q1
    inner = [value for value in sorted(data) if q1 - 1.5 * width <= value <= q3 + 1.5 * width]
    far = sum(abs(value - mean) > spread for value in data)
    return {
        "min": low, "max": high, "mean": mean, "stddev": spread, "rounds": len(data), "median": median(data),
        "iqr": width, "q1": q1, "q3": q3, "iqr_outliers": len(data) - len(inner), "stddev_outliers": far,
        "outliers": f"{far};{len(data) - len(inner)}", "ld15iqr": inner[0], "hd15iqr": inner[-1],
        "ops": 1 / mean if mean else 0.0, "total": exact_sum(data), "data": list(data), "iterations": 1,
    }  # fmt: skip


def _machine(results: Sequence[Result]) -> Mapping[str, object]:
    """That tool warns where these differ between two files."""
    places = sorted({f"{result.vendor}/{result.machine}" for result in results})
    name = ", ".join(places) or "unknown"
    same = dict.fromkeys(("system", "release", "python_version"), "")
    return {"node": name, "machine": name, "processor": name, "cpu": {}, **same}
