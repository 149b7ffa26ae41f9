"""Carries a baseline over an upgrade: sessions of the old and the new revision, in turn on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from reports import statistics
from reports.baseline_store import MEASURED, baseline_from, keep
from reports.compare import TOLERANCES, adjusted, measured
from reports.json_report import read_session
from reports.places import session_folder
from suite.baseline_file import Baseline, read_baseline
from suite.errors import UsageProblem
from suite.figures import Figures, figures_of
from suite.result import MetricResult


class _Leg(NamedTuple):
    """One session's measurement of the plan."""

    started: str
    revision: str
    session: str
    host: str
    figures: Figures


def bridge(path: Path, old: Sequence[Path], new: Sequence[Path], *, today: str) -> Path:
    """Propose the new revision's runs as the successor of the baseline in `path`. Raises UsageProblem, OSError.

    Only where the old revision, measured in between, still agrees with the baseline: otherwise it is the machine that
    has changed, and no bridge leads across that.
    """
    baseline = read_baseline(path)
    legs = sorted(
        [_leg(baseline, session, "old") for session in old] + [_leg(baseline, session, "new") for session in new]
    )
    _check_turns(legs)
    before = _merged([leg.figures for leg in legs if leg.revision == "old"])
    after = _merged([leg.figures for leg in legs if leg.revision == "new"])
    if before.fingerprint != baseline.fingerprint:
        raise UsageProblem(f"{path}: the old revision's sessions have another fingerprint than this baseline")
    _still_holds(path, baseline, before)
    told = [f"bridged from {path.name}"]
    for name in TOLERANCES:
        if name in before.metric and name in after.metric:
            values = before.metric[name].values, after.metric[name].values
            low, high = statistics.bootstrap_ratio(*values)
            ratio = after.metric[name].value / before.metric[name].value
            told.append(
                f"{name} new over old {ratio:.4f} ({low:.4f} to {high:.4f}, n {len(values[0])}+{len(values[1])})"
            )
    source = " ".join(leg.session for leg in legs if leg.revision == "new")
    proposal = baseline_from(after, source=source, today=today, reason="; ".join(told))
    return keep(proposal, path.parent.parent if path.parent.name == baseline.vendor else path.parent)


def _leg(baseline: Baseline, path: Path, revision: str) -> _Leg:
    report = read_session(session_folder(path))
    for result in report.results:
        figures = figures_of(result)
        if (figures.task, figures.place) == (baseline.task, baseline.place):
            if figures.outcome not in MEASURED:
                raise UsageProblem(f"{path}: {result.id} ended as {figures.outcome}; a bridge needs runs that passed")
            host = str(result.environment.get("host", ""))
            return _Leg(report.session.started or "", revision, report.session.id, host, figures)
    raise UsageProblem(f"{path}: no result of {baseline.id}; run that plan with both revisions")


def _check_turns(legs: Sequence[_Leg]) -> None:
    """Old, new, old, new …: a drift of the machine then meets both alike."""
    if any(a.revision == b.revision for a, b in pairwise(legs)) or len(legs) < 4:
        order = " ".join(leg.revision for leg in legs)
        raise UsageProblem(f"the sessions ran as: {order}; a bridge needs them in turn, old new old new at least")
    hosts = sorted({leg.host for leg in legs})
    if len(hosts) > 1:
        raise UsageProblem(f"the sessions ran on {', '.join(hosts)}; a bridge needs one machine")


def _merged(all_figures: Sequence[Figures]) -> Figures:
    """The runs of several sessions as one."""
    first = all_figures[0]
    if any(one.fingerprint != first.fingerprint for one in all_figures):
        raise UsageProblem(f"{first.id}: the sessions of one revision differ in their environment; keep it as it is")
    metric = {
        name: MetricResult(value=statistics.middle(values), unit=known.unit, values=values)
        for name, known in first.metric.items()
        if (values := tuple(value for one in all_figures if name in one.metric for value in one.metric[name].values))
    }
    return first.model_copy(update={"metric": metric})


def _still_holds(path: Path, baseline: Baseline, before: Figures) -> None:
    (pair,) = adjusted([measured(baseline, before)])
    for row in pair.rows:
        if row.verdict in ("regression", "improvement"):
            raise UsageProblem(
                f"{path}: the old revision no longer agrees with it ({row.metric}: {row.reason}); the machine has"
                " changed, so propose a new baseline instead"
            )
