"""Judging runs again from their folders, without the machine, and saying what differs from the stored verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reports.load import load
from suite.errors import UsageProblem
from suite.result import CheckResult, Result
from suite.rounding import ROUNDING, alike
from suite.schema_version import NewerSchema
from suite.verdict import judge_folder

SHOWN = 12
"""Differences listed of one plan; the rest are counted."""

RESTS = ("unaccounted_s", "unaccounted_over")
"""What is left of a run's time after all that is accounted for: rounded as the whole, however little it is."""


class Rejudged(NamedTuple):
    """A plan's verdict made anew, and how it differs from the stored one."""

    folder: Path
    result: Result
    differences: tuple[str, ...]
    """Empty: the stored result.json says the same."""


def rejudge(folder: Path, baselines: Sequence[Path] = (), *, mend: bool = False) -> Rejudged:
    """Judge the plan folder `folder` again. Raises UsageProblem where there is no plan.json.

    A stored result.json that cannot be read is a UsageProblem too; with `mend`, a difference.
    """
    if not (folder / "plan.json").is_file():
        raise UsageProblem(f"{folder}: holds no plan.json, so there is nothing to judge; name a plan's folder")
    stored = _stored(folder / "result.json", mend=mend)
    result = judge_folder(folder, baselines=baselines)
    if isinstance(stored, str):
        return Rejudged(folder, result, (stored,))
    found = list(differences(stored, result))
    if len(found) > SHOWN:
        found[SHOWN:] = [f"and {len(found) - SHOWN} more differences"]
    return Rejudged(folder, result, tuple(found))


def _stored(path: Path, *, mend: bool) -> Result | str:
    """The stored result, or a sentence on why there is none to compare with."""
    if not path.exists():
        return "there is no stored result.json"
    try:
        return load(Result, path)
    except NewerSchema:
        raise
    except UsageProblem as problem:
        if not mend:
            raise
        return str(problem)


def differences(stored: Result, again: Result) -> Iterator[str]:
    """A line for each thing that `again` says otherwise than `stored`, the verdict first.

    Figures may part as far as rounding explains: another version of Trainmark or Python may have added them otherwise.
    """
    slack = rests(again)
    if stored.outcome != again.outcome:
        yield f"outcome: stored {_outcome(stored)}; judged again {_outcome(again)}"
    before = {check.name: check for check in stored.checks}
    after = {check.name: check for check in again.checks}
    for name in [*before, *(name for name in after if name not in before)]:
        if not _same_check(before.get(name), after.get(name), slack):
            yield f"check {name}: stored {_check(before.get(name))}; judged again {_check(after.get(name))}"
    for name in sorted({*stored.metrics, *again.metrics}):
        if not alike({name: stored.metrics.get(name)}, {name: again.metrics.get(name)}, slack):
            yield f"metric {name}: stored {_metric(stored, name)}; judged again {_metric(again, name)}"
    yield from _files(stored, again)
    told = {"outcome", "checks", "metrics", "artifacts"}
    for key in Result.model_fields:
        if key not in told and not alike({key: getattr(stored, key)}, {key: getattr(again, key)}, slack):
            yield f"{key} differs"


def rests(again: Result) -> Mapping[str, float]:
    """How far rounding alone may part the figures of RESTS in two verdicts on the runs of `again`."""
    whole = max((run.ledger.get("wall_s", 0.0) for run in again.runs), default=0.0)
    return dict.fromkeys(RESTS, ROUNDING * whole)


def _same_check(before: CheckResult | None, after: CheckResult | None, slack: Mapping[str, float]) -> bool:
    return alike(before, after, {"value": slack.get(after.metric, 0.0)} if after is not None else {})


def _files(stored: Result, again: Result) -> Iterator[str]:
    """Files of the run folder that were edited, deleted or added since the verdict."""
    before = {artifact.path: (artifact.bytes, artifact.sha256) for artifact in stored.artifacts}
    after = {artifact.path: (artifact.bytes, artifact.sha256) for artifact in again.artifacts}
    for path in sorted({*before, *after}):
        if path not in after:
            yield f"file {path}: gone since the verdict"
        elif path not in before:
            yield f"file {path}: not there at the verdict"
        elif before[path] != after[path]:
            yield f"file {path}: changed since the verdict"


def _outcome(result: Result) -> str:
    outcome = result.outcome
    return ": ".join(part for part in (outcome.status, outcome.category, outcome.reason) if part)


def _check(check: CheckResult | None) -> str:
    return "none" if check is None else f"{check.status} ({check.value} {check.op} {check.threshold})"


def _metric(result: Result, name: str) -> str:
    metric = result.metrics.get(name)
    return "none" if metric is None else f"{metric.value} {metric.unit}".rstrip()
