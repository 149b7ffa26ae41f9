"""What a speedup is measured against: the base's own runs, or an equal result of earlier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from suite.baseline_file import MAX_FILES, Baseline, approved, read_baseline
from suite.errors import UsageProblem
from suite.events import is_plain_file
from suite.harness_log import HarnessLog
from suite.measure import measure
from suite.metrics import metric_of
from suite.plan import Plan
from suite.result import Base, Result
from suite.rounding import exact_sum
from suite.run_folders import newest_attempts
from suite.schema_version import NewerSchema


@dataclass(frozen=True, slots=True)
class FoundBase:
    """The base with its values, or the reason why it has none."""

    base: Base
    reason: str = ""
    """Empty where the values can be used."""
    interleaved: bool = False
    """Its runs took turns with the plan's: one before each, in that order, and mostly one after the last."""


def find_base(plan: Plan, folder: Path, log: HarnessLog, baselines: Sequence[Path] = ()) -> FoundBase | None:
    """The base of `plan`: the folder that harness.jsonl names, else base/, else an equal plan_digest in `baselines`.

    None where the plan has no base. Every run of the base counts: if one is lost, so is the comparison.
    """
    if plan.base is None:
        return None
    named = log.base.get("folder") if log.base else None
    place = str(named) if isinstance(named, str) and "\0" not in named else "base"
    note = str(log.base.get("note") or "") if log.base else ""
    where = folder / place
    if (where / "plan.json").is_file():
        # A bundle keeps a base of earlier in base/ too: that it was reused stands in the log alone.
        own = place == "base" and not (log.base and log.base.get("reused"))
        return _from_folder(plan, plan.base, where, place, note, interleaved=own)
    for path in baselines:
        for result in _results(path):
            if found := _from_result(plan, plan.base, result, path):
                return found
        for file, baseline in approved(path) if path.suffix != ".json" else ():
            if found := _from_baseline(plan, plan.base, baseline, file):
                return found
    return _lost(plan, plan.base, place, f"the base {plan.base.id} was not run, and no baseline has its plan_digest")


def check_named(path: Path) -> Path:
    """`path`, if it is a folder, a result.json or a baseline: what was named outright is never passed over in silence.

    Raises UsageProblem.
    """
    if path.is_dir():
        return path
    if not is_plain_file(path):
        raise UsageProblem(f"--baseline {path} is no regular file; name a baseline, a result.json or a folder of them")
    if path.suffix != ".json":
        read_baseline(path)
        return path
    try:
        Result.read(path)
    except NewerSchema:
        raise
    except (OSError, ValueError):
        raise UsageProblem(
            f"--baseline {path} is not a result.json of a plan; name one, a baseline, or a folder of them"
        ) from None
    return path


def _from_folder(plan: Plan, base: Plan, where: Path, place: str, note: str, *, interleaved: bool) -> FoundBase:
    """Measure the base's runs again from their folders."""
    try:
        ran = Plan.read(where / "plan.json")
    except (OSError, ValueError):
        return _lost(plan, base, place, f"{place}/plan.json is not a plan")
    if ran.plan_digest != base.plan_digest:
        return _lost(plan, base, place, f"{place}/plan.json has plan_digest {ran.plan_digest}, not {base.plan_digest}")
    runs = newest_attempts(where)
    values = []
    for path in runs:
        run = measure(ran, path)
        if run.problem is not None:
            return _lost(plan, base, place, f"{place}/{path.name}: {run.problem.category}: {run.problem.reason}")
        if plan.speedup_metric not in run.metrics:
            missing = run.missing.get(plan.speedup_metric)
            why = f"{missing.category}: {missing.reason}" if missing else f"no metric {plan.speedup_metric}"
            return _lost(plan, base, place, f"{place}/{path.name}: {why}")
        values.append(run.metrics[plan.speedup_metric])
    if not values or min(values) <= 0:
        return _lost(plan, base, place, f"{place} holds no run with a {plan.speedup_metric} above zero")
    return FoundBase(_base(plan, base, tuple(values), place, note or plan.base_note), interleaved=interleaved)


def _from_result(plan: Plan, base: Plan, result: Result, path: Path) -> FoundBase | None:
    """An earlier result of the same plan_digest that measured the metric; only what ended well counts."""
    metric = result.metrics.get(plan.speedup_metric)
    if result.plan_digest != base.plan_digest or metric is None or not metric.values or min(metric.values) <= 0:
        return None
    if result.outcome.status not in ("passed", "inconclusive"):
        return None
    return FoundBase(_base(plan, base, metric.values, str(path), f"from {path.name}: {plan.base_note}".rstrip(": ")))


def _from_baseline(plan: Plan, base: Plan, baseline: Baseline, path: Path) -> FoundBase | None:
    """An approved baseline of the same plan_digest that holds the metric."""
    metric = baseline.metric.get(plan.speedup_metric)
    if baseline.plan_digest != base.plan_digest or metric is None or not metric.values or min(metric.values) <= 0:
        return None
    note = f"approved baseline {path.name}, measured in session {baseline.source}"
    return FoundBase(_base(plan, base, metric.values, str(path), note))


def _results(path: Path) -> Iterator[Result]:
    """Results in a file, a folder of baselines, or a results folder; what is no result is passed over."""
    if path.is_dir():
        paths = sorted(islice(path.rglob("*.json"), MAX_FILES))
    else:
        paths = [path] if path.is_file() and path.suffix != ".toml" else []
    for file in paths:
        if not is_plain_file(file):
            continue
        try:
            yield Result.read(file)
        except (OSError, ValueError):
            continue


def _base(plan: Plan, base: Plan, values: tuple[float, ...], folder: str, note: str) -> Base:
    return Base(
        id=base.id,
        plan_digest=base.plan_digest,
        metric=plan.speedup_metric,
        value=exact_sum(values) / len(values) if values else None,
        values=values,
        unit=metric_of(plan, plan.speedup_metric).unit,
        folder=folder,
        note=note,
    )


def _lost(plan: Plan, base: Plan, folder: str, reason: str) -> FoundBase:
    return FoundBase(_base(plan, base, (), folder, reason), reason)
