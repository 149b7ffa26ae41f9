"""Judges a plan's folder: numbers x thresholds (x base) -> one outcome. Writes nothing and says the same twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from suite.artifacts import artifacts
from suite.baseline import FoundBase, find_base
from suite.checking import Evidence, devices_ratio, judge_check, speedups
from suite.conformance_findings import is_conformance, measure_findings, with_remark
from suite.digest import comparability_key
from suite.errors import UsageProblem
from suite.harness_log import HarnessLog, read_harness
from suite.measure import measure
from suite.measurement import Measurement
from suite.metrics import metric_of
from suite.outcome import PASSED, Outcome
from suite.plan import Plan
from suite.requality import with_requality
from suite.result import CheckResult, MetricResult, Result, RunResult
from suite.run_folders import newest_attempts
from suite.schema_version import NewerSchema
from suite.soundness import twins

CATEGORY = {
    "quality": "quality",
    "time_to_train": "time_to_train",
    "throughput": "throughput",
    "speedup": "speedup",
    "ranks_in_sync": "ranks_diverged",
    "ledger": "invalid_measurement",
    "requality": "invalid_measurement",
    "too_good": "too_good",
}
"""Category of a failed check by its name; any other is a declared fact that does not hold: `check`."""

FIRST = ("invalid_measurement", "nonfinite_loss", "ranks_diverged")
"""Categories that void the others, in the order in which they are told."""

STRUCTURAL = frozenset({"ranks_in_sync", "ledger"})
"""Checks that ask whether the run was sound; they are no threshold that anybody declared."""


def judge_folder(folder: Path, *, baselines: Sequence[Path] = ()) -> Result:
    """Judge the plan in `folder` from its files alone.

    Whatever the run folders hold, a Result with the plan's checks comes out. Raises UsageProblem only where `folder`
    has no readable plan.json, for then there is nothing to judge.
    """
    plan = with_requality(_read_plan(folder), folder)
    log = read_harness(folder)
    measured = measure_findings if is_conformance(plan) else measure
    runs = tuple(measured(plan, path) for path in newest_attempts(folder))
    base = find_base(plan, folder, log, baselines)
    problem = _settled(plan, log, runs)
    evidence = Evidence(plan=plan, runs=runs, base=base, lost=_said(problem) if problem else "")
    checks = tuple(with_remark(judge_check(check, evidence), runs) for check in plan.checks)
    outcome = problem or _decide(plan, checks)
    return _result(evidence, outcome, checks, folder)


def _read_plan(folder: Path) -> Plan:
    path = folder / "plan.json"
    try:
        return Plan.read(path)
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file; name the folder of a plan, as in results/latest/<id>") from None
    except NewerSchema:
        raise
    except (OSError, ValueError) as problem:
        first = str(problem).splitlines()[0]
        raise UsageProblem(
            f"{path}: not a plan of this version ({first}); judge it with the version that wrote it"
        ) from None


def _settled(plan: Plan, log: HarnessLog, runs: Sequence[Measurement]) -> Outcome | None:
    """What decides the outcome without any check: settled by the harness, or a run that is void or lost."""
    if log.settled is not None and log.settled.status != "passed":
        return log.settled
    problems = [(run, run.problem) for run in runs if run.problem is not None]
    if problems:
        run, worst = min(problems, key=lambda pair: _rank(pair[1]))
        if plan.repeat == 1:
            return worst
        return worst.model_copy(update={"reason": f"run {run.n} of {plan.repeat}: {worst.reason}"})
    if (copied := twins([run.run for run in runs])) is not None:
        return _one_run(*(runs[place] for place in copied))
    if (same := twins([run.trace for run in runs])) is not None:
        return _one_seed(*(runs[place] for place in same))
    if len(runs) < max(plan.repeat, 1):
        reason = f"{len(runs)} of {plan.repeat} runs left a folder, and nothing says why: the harness was lost"
        return Outcome(status="error", category="worker_lost", reason=reason)
    return None


def _one_run(one: Measurement, other: Measurement) -> Outcome:
    """A copy is no repeat."""
    reason = f"{one.folder} and {other.folder} are both of the run {one.run}: one of them is a copy"
    return Outcome(status="failed", category="invalid_measurement", reason=reason)


def _one_seed(one: Measurement, other: Measurement) -> Outcome:
    """Two runs that were one and the same are no repeat."""
    reason = (
        f"runs {one.n} and {other.n} had the same data and the same losses, step by step, though their seeds are"
        f" {one.seed} and {other.seed}: the seed does not reach the training"
    )
    return Outcome(status="failed", category="invalid_measurement", reason=reason)


def _rank(outcome: Outcome) -> int:
    """Order of telling: what voids a measurement, other failures, then errors."""
    if outcome.category in FIRST:
        return FIRST.index(outcome.category)
    return len(FIRST) + (outcome.status != "failed")


def _decide(plan: Plan, checks: Sequence[CheckResult]) -> Outcome:
    """Failed if any check fails, else inconclusive if a required one is; throughput needs a declared threshold."""
    failed = [(CATEGORY.get(check.name, "check"), check) for check in checks if check.status == "fail"]
    if failed:
        category, check = min(failed, key=lambda pair: FIRST.index(pair[0]) if pair[0] in FIRST else len(FIRST))
        return Outcome(status="failed", category=category, reason=_told(check, category, check.reason))
    for check in checks:
        if check.required and check.status == "inconclusive":
            category, _, reason = check.reason.partition(": ")
            return Outcome(status="inconclusive", category=category, reason=_told(check, category, reason))
    declared = [check for check in checks if check.name not in STRUCTURAL and check.threshold is not None]
    if plan.mode == "throughput" and not declared:
        reason = "nobody has declared a threshold for this throughput run"
        lost = [check for check in checks if check.name == "throughput" and check.value is None and check.reason]
        reason += "".join(f"; nor was throughput measured: {check.reason}" for check in lost)
        return Outcome(status="inconclusive", category="no_threshold", reason=reason)
    return PASSED


def _told(check: CheckResult, category: str, reason: str) -> str:
    """The reason for a person, with the check's name where the category does not say it already."""
    return reason if category == check.name else f"{check.name}: {reason}"


def _said(outcome: Outcome) -> str:
    return f"the run is lost or void ({outcome.status}: {outcome.category})".replace(": )", ")")


def _result(evidence: Evidence, outcome: Outcome, checks: tuple[CheckResult, ...], folder: Path) -> Result:
    plan, runs = evidence.plan, evidence.runs
    typical = _median_run(plan, runs)
    environment: Mapping[str, object] = typical.environment if typical else {}
    same = plan.model_dump(include=set(Result.model_fields) & set(Plan.model_fields) - {"base", "topology"})
    return Result.model_validate(
        {
            **same,
            "topology": plan.topology,
            "outcome": outcome,
            "checks": checks,
            "metrics": _metrics(evidence),
            "ledger": typical.ledger if typical else {},
            "curve": typical.curve if typical else (),
            "runs": tuple(_run_result(run) for run in runs),
            "environment": environment,
            "comparability_key": comparability_key(plan, environment),
            "base": evidence.base.base if isinstance(evidence.base, FoundBase) else None,
            "artifacts": artifacts(folder),
        }
    )


def _metrics(evidence: Evidence) -> dict[str, MetricResult]:
    """Median and values of every metric over the runs that have it; a speedup is over the base runs beside it."""
    found: dict[str, list[float]] = {}
    for run in evidence.runs:
        for name, value in run.metrics.items():
            found.setdefault(name, []).append(value)
    if not evidence.lost and (measured := speedups(evidence)) is not None:
        found["speedup"] = list(measured.values)
        found["efficiency"] = list(measured.over(devices_ratio(evidence.plan)).values)
    return {
        name: MetricResult(value=median(values), unit=metric_of(evidence.plan, name).unit, values=tuple(values))
        for name, values in found.items()
    }


def _median_run(plan: Plan, runs: Sequence[Measurement]) -> Measurement | None:
    """The run in the middle by time to train, else by the speedup metric; of lost runs, the first."""
    for metric in ("time_to_train_s", plan.speedup_metric):
        measured = sorted((run for run in runs if metric in run.metrics), key=lambda run: (run.metrics[metric], run.n))
        if measured:
            return measured[(len(measured) - 1) // 2]
    return runs[0] if runs else None


def _run_result(run: Measurement) -> RunResult:
    return RunResult(
        n=run.n,
        seed=run.seed,
        folder=run.folder,
        outcome=run.problem or PASSED,
        metrics=run.metrics,
        ledger=run.ledger,
        curve=run.curve,
        attempts=run.attempts,
        environment=run.environment,
    )
