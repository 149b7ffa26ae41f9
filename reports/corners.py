"""Reads one side of `versus`: a session, results, or baselines, with what each of them keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reports.contender import Contender, from_baseline, from_result
from reports.json_report import read_session
from reports.load import load
from reports.places import is_session
from reports.versus import Corner
from suite.baseline_file import Baseline, baseline_files, read_baseline
from suite.catalog import Catalog
from suite.errors import UsageProblem
from suite.result import Result

_REMEDY = "name a session, a folder of sessions, a plan's folder, a result.json, a baseline, or a folder of baselines"


def read_corner(path: Path, catalog: Catalog) -> Corner:
    """Everything measured that `path` names. Raises UsageProblem where that is nothing."""
    if not path.exists():
        raise UsageProblem(f"{path}: no such file or folder; {_REMEDY}")
    results, remarks = _newest(list(_results(path)))
    found = [from_result(result) for result in results]
    if not results:
        files = [] if path.suffix == ".json" else list(baseline_files(path))
        found = [_of_baseline(read_baseline(file), catalog) for file in files]
    if not found:
        raise UsageProblem(f"{path}: holds no result and no baseline; {_REMEDY}")
    measured = [one for one in found if one.amounts]
    if not measured:
        outcomes = ", ".join(f"{one.id} {one.outcome}" for one in found)
        raise UsageProblem(f"{path}: nothing in it was measured ({outcomes}); run it again, then compare")
    remarks += [f"{one.id}: measured nothing: {one.outcome}" for one in found if not one.amounts]
    return Corner(str(path), tuple(measured), tuple(remarks))


def _newest(results: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """Of each plan the last that measured something, and a sentence for the plans that were measured more often."""
    found: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        found.setdefault((result.id, result.plan_digest), []).append(result)
    newest = [([one for one in some if one.metrics] or some)[-1] for some in found.values()]
    remarks = [
        f"{some[0].id}: {len(some)} sessions have it; the newest is taken" for some in found.values() if len(some) > 1
    ]
    return newest, remarks


def _results(path: Path) -> Iterator[Result]:
    if path.is_file():
        if path.name == "session.json":
            yield from read_session(path.parent).results
        elif path.suffix == ".json":
            yield load(Result, path)
    elif is_session(path):
        yield from read_session(path).results
    elif (path / "result.json").is_file():
        yield load(Result, path / "result.json")
    else:
        # A folder of sessions; `latest` is one of them under a second name.
        for file in sorted(path.glob("*/session.json")):
            if not file.parent.is_symlink():
                yield from read_session(file.parent).results


def _of_baseline(baseline: Baseline, catalog: Catalog) -> Contender:
    """What a power reading covers is a fact of the machine, which a baseline only names."""
    try:
        scope = catalog.vendor(baseline.vendor).machine(baseline.machine).power_scope
    except UsageProblem:
        scope = "unknown"
    return from_baseline(baseline, scope)
