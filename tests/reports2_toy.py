"""Results and sessions with chosen numbers, for what compares, gates, exports and keeps them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from reports.json_report import Git, SessionFacts, SessionReport, write_result, write_session
from suite.outcome import PASSED, Outcome
from suite.plan import Plan
from suite.result import MetricResult, Result, RunResult
from suite.verdict import judge_folder
from tests.reports_toy import toy_plan, toy_result
from tests.run_folders import tiny_plan, write_plan_folder

STARTED = "2026-01-31T12:00:00Z"


def noisy(centre: float, runs: int, cv: float, seed: int = 1) -> tuple[float, ...]:
    """Runs around `centre`."""
    draw = random.Random(seed)
    return tuple(centre * (1 + draw.gauss(0, cv)) for _ in range(runs))


def result_with(
    name: str = "toy",
    *,
    throughput: Sequence[float] = (100.0,),
    time: Sequence[float] = (600.0,),
    outcome: Outcome = PASSED,
    plan: Mapping[str, Any] | None = None,
    **over: Any,
) -> Result:
    """A result whose runs measured these numbers."""
    metrics = {
        name: MetricResult(value=median(values), unit=unit, values=tuple(values))
        for name, unit, values in (
            ("throughput_train", "image/s", throughput),
            ("time_to_train_s", "s", time),
            ("step_time_median_s", "s", [10 / value for value in throughput]),
        )
    }
    runs = tuple(
        RunResult(
            n=n, seed=n, folder=f"r{n}", outcome=PASSED, metrics={"throughput_train": value}, ledger={}, curve=(),
            attempts=1, environment={},
        )
        for n, value in enumerate(throughput, 1)
    )  # fmt: skip
    fields: dict[str, Any] = {
        "metrics": metrics, "runs": runs, "environment": {"host": "h", "driver_version": "550"},
        "comparability_key": "f" * 64,
    }  # fmt: skip
    return toy_result(toy_plan(name, **(plan or {})), outcome, **(fields | over))


def session_with(folder: Path, results: Sequence[Result], **over: Any) -> Path:
    """A finished session that holds `results`."""
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        "id": folder.name, "started": STARTED, "finished": STARTED, "command": "pytest suite", "exit_status": 0,
        "git": Git(commit="c0ffee", dirty=False),
    }  # fmt: skip
    report = SessionReport(
        session=SessionFacts(**(facts | over)), selected=tuple(result.id for result in results), results=tuple(results)
    )
    write_session(report, folder)
    return folder


def real_session(folder: Path, *, runs: Sequence[dict[str, Any]] = ({},), **plan: Any) -> tuple[Path, Plan]:
    """A session whose one plan has run folders and is judged from them."""
    planned = tiny_plan(**plan)
    write_plan_folder(folder / planned.id, planned, runs=runs)
    result = judge_folder(folder / planned.id)
    write_result(result, folder / planned.id)
    return session_with(folder, [result]), planned
