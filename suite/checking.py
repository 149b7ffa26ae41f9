"""Holds the numbers of all runs to one check: pass, fail, or inconclusive with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from suite.baseline import FoundBase
from suite.convergence import olympic_mean
from suite.convergence_checks import BOTH_SIDES
from suite.curve import best, first_met
from suite.measurement import Measurement, Missing
from suite.metrics import metric_of
from suite.paired import Ratio, apart, in_turns
from suite.plan import Check, Plan
from suite.result import CheckResult, CheckStatus

EVERY_RUN = frozenset({"ranks_in_sync", "unaccounted_over", "requality_gap"})
"""Metrics that must hold in every run, as the quality must: a median would hide the run that broke."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a plan is judged by."""

    plan: Plan
    runs: tuple[Measurement, ...]
    base: FoundBase | None
    lost: str
    """Why the checks cannot be judged; empty where every planned run ended well."""


def judge_check(check: Check, evidence: Evidence) -> CheckResult:
    """The result of one check. A lost run leaves every check `inconclusive: not_measured`."""
    if evidence.lost:
        return _inconclusive(check, evidence, None, "not_measured", evidence.lost)
    if check.metric in ("speedup", "efficiency"):
        return _judge_speedup(check, evidence)
    if check.metric == evidence.plan.quality.metric and check.name == "quality":
        return _judge_quality(check, evidence)
    missing = [
        run.missing.get(check.metric) or _absent(check) for run in evidence.runs if check.metric not in run.metrics
    ]
    if missing:
        if check.metric == "time_to_train_s" and missing[0].category == "not_measured" and check.threshold is not None:
            # The run went its whole way: that it did not get there in time is certain.
            return _result(check, evidence, None, "fail", missing[0].reason)
        return _inconclusive(check, evidence, None, missing[0].category, missing[0].reason)
    values = [run.metrics[check.metric] for run in evidence.runs]
    return _compare(check, evidence, _over_runs(check)(values))


def _over_runs(check: Check) -> Callable[[Sequence[float]], float]:
    """What becomes of the values of all runs: as many as planned, for a plan with fewer is lost."""
    if check.name in BOTH_SIDES:
        return olympic_mean
    return worst(check) if check.metric in EVERY_RUN else median


def worst(check: Check) -> Callable[[Sequence[float]], float]:
    """Of several values, the one that is hardest on the check."""
    if check.op == "==":
        return lambda values: max(values, key=lambda value: abs(value - (check.threshold or 0.0)))
    return min if check.op == ">=" else max


def holds(check: Check, value: float, threshold: float) -> bool:
    """Whether `value` satisfies the check; the tolerance is relative, absolute where the threshold is zero."""
    slack = check.tolerance * (abs(threshold) or 1.0)
    if check.op == "==":
        return abs(value - threshold) <= slack
    return value >= threshold - slack if check.op == ">=" else value <= threshold + slack


def speedups(evidence: Evidence) -> Ratio | None:
    """How many times the base's speed the runs have; None without a base, or where a number is not above zero."""
    found, metric = evidence.base, evidence.plan.speedup_metric
    if found is None or found.reason or not found.base.values or not evidence.runs:
        return None
    runs, bases = [run.metrics.get(metric, 0.0) for run in evidence.runs], found.base.values
    if min(runs) <= 0 or min(bases) <= 0:
        return None
    if metric_of(evidence.plan, metric).better == "lower":
        runs, bases = [1 / value for value in runs], tuple(1 / value for value in bases)
    interleaved = found.interleaved and 0 <= len(bases) - len(runs) <= 1
    return in_turns(bases, runs) if interleaved else apart(bases, runs)


def devices_ratio(plan: Plan) -> float:
    """How many times the base's devices the plan has."""
    return plan.world_size / plan.base.world_size if plan.base else 1.0


def _judge_speedup(check: Check, evidence: Evidence) -> CheckResult:
    """Speedup over the base. Where its interval leaves both answers open: `inconclusive: noise`."""
    plan, found = evidence.plan, evidence.base
    if found is None or found.reason:
        reason = found.reason if found else "the plan has no base"
        return _inconclusive(check, evidence, None, "no_baseline", reason)
    for run in evidence.runs:
        if plan.speedup_metric not in run.metrics:
            missing = run.missing.get(plan.speedup_metric) or _absent(check)
            return _inconclusive(check, evidence, None, missing.category, missing.reason)
    measured = speedups(evidence)
    if measured is None:
        return _inconclusive(check, evidence, None, "not_measured", f"a run has no {plan.speedup_metric} above zero")
    measured = measured.over(devices_ratio(plan) if check.metric == "efficiency" else 1.0)
    if check.threshold is not None and (reason := _left_open(check, check.threshold, measured)):
        return _told(_inconclusive(check, evidence, measured.value, "noise", reason), measured)
    return _told(_compare(check, evidence, measured.value), measured)


def _left_open(check: Check, threshold: float, measured: Ratio) -> str:
    """Why the interval does not answer; empty where all of it holds, or none of it.

    One run against one base of earlier has no interval: its value is judged alone, as that of every single run.
    """
    if measured.low is None or measured.high is None:
        return ""
    low, high = holds(check, measured.low, threshold), holds(check, measured.high, threshold)
    if (low and high) or not (low or high or measured.low <= threshold <= measured.high):
        return ""
    return (
        f"the runs and base runs put it between {measured.low:.4g} and {measured.high:.4g} (95 %); "
        "the threshold lies between: repeat more"
    )


def _told(result: CheckResult, measured: Ratio) -> CheckResult:
    """With the interval, beside what was compared with; without one there are no degrees of freedom."""
    interval: dict[str, float] = {}
    if measured.low is not None and measured.high is not None:
        interval = {"low": float(f"{measured.low:.6g}"), "high": float(f"{measured.high:.6g}")}
    facts = {**(result.baseline or {}), **interval, "degrees_of_freedom": measured.freedom}
    return result.model_copy(update={"baseline": facts})


def _judge_quality(check: Check, evidence: Evidence) -> CheckResult:
    """The target must be met in every run, at some evaluation: training stops at the first. NaN never meets."""
    quality = evidence.plan.quality
    values: list[float] = []
    for run in evidence.runs:
        met = first_met(quality, run.curve)
        value = run.curve[met].value if met is not None else best(quality, run.curve)
        if not run.curve:
            return _inconclusive(check, evidence, None, "not_measured", f"run {run.n} has no evaluation")
        if value is None or isinstance(value, str):
            return _result(check, evidence, run.curve[-1].value, "fail", f"no evaluation of run {run.n} is finite")
        values.append(value)
    return _compare(check, evidence, (min if quality.better == "higher" else max)(values))


def _compare(check: Check, evidence: Evidence, value: float) -> CheckResult:
    if check.threshold is None:
        return _inconclusive(check, evidence, value, "no_threshold", "nobody has declared one")
    if holds(check, value, check.threshold):
        return _result(check, evidence, value, "pass", "")
    reason = f"{_shown(value)} is not {check.op} {_shown(check.threshold)}"
    if check.tolerance:
        reason += f" (tolerance {check.tolerance:g})"
    if check.metric == "ranks_in_sync":
        told = [run.environment["ranks_in_sync"] for run in evidence.runs if "ranks_in_sync" in run.environment]
        reason = str(told[0]) if told else reason
    if check.metric == "requality_gap":
        reason = f"evaluated again, {evidence.plan.quality.metric} is {value:.6g} from what the run said"
        reason += f"; at most {check.threshold:.6g} is explained by another device and precision"
    if check.metric == "unaccounted_over":
        reason = f"{value:.3g} s more than allowed lie in no phase of the ledger"
    return _result(check, evidence, value, "fail", reason)


def _shown(value: float) -> str:
    """Six digits; a count in full, or two that differ would look alike."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _inconclusive(check: Check, evidence: Evidence, value: float | None, category: str, reason: str) -> CheckResult:
    return _result(check, evidence, value, "inconclusive", f"{category}: {reason}")


def _result(
    check: Check, evidence: Evidence, value: float | str | None, status: CheckStatus, reason: str
) -> CheckResult:
    found = evidence.base if check.metric in ("speedup", "efficiency") else None
    compared = found.base.model_dump(include={"id", "value", "unit", "folder"}) if found else None
    return CheckResult(
        name=check.name,
        metric=check.metric,
        value=value,
        op=check.op,
        threshold=check.threshold,
        unit=check.unit or metric_of(evidence.plan, check.metric).unit,
        required=check.required,
        status=status,
        reason=reason,
        source=check.source,
        baseline=compared,
    )


def _absent(check: Check) -> Missing:
    return Missing(category="not_observable", reason=f"this run yields no {check.metric}")
