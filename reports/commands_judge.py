"""`python -m reports rejudge` of a bundle: a stranger's session, judged by this checkout's code and plans."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from reports import requality
from reports.json_report import SessionReport, read_session, write_session
from reports.junit import FILE_NAME as JUNIT_FILE
from reports.junit import write_junit
from reports.places import plan_folders
from reports.rejudge import Rejudged, rejudge
from reports.replan import own_plans
from reports.unbundle import unpacked
from suite.result import Result


def rejudge_bundle(arguments: argparse.Namespace) -> list[Rejudged]:
    """Judge what is in the bundle; nothing of it stays but what --output asks for. Raises UsageProblem."""
    with unpacked(arguments.path) as folder:
        plans = plan_folders(folder)
        if arguments.own_plans or arguments.requality:
            requality.forget(folder)
        if arguments.own_plans:
            own_plans(plans, arguments.vendor_path)
        if arguments.requality:
            requality.evaluate_again(folder, arguments)
        judged = [rejudge(plan, arguments.baseline) for plan in plans]
        if arguments.output is not None:
            _write(read_session(folder), [one.result for one in judged], arguments.output)
    return judged


def _write(report: SessionReport, results: Sequence[Result], output: Path) -> None:
    """The session with the new verdicts; what a plan without a folder says of itself is kept if it is no pass."""
    new = {result.id: result for result in results}
    old = [result for result in report.results if result.id not in new and result.outcome.status != "passed"]
    kept = [*results, *old]
    statuses = {result.outcome.status for result in kept}
    status = 1 if statuses & {"failed", "error"} else 0 if "passed" in statuses else 5
    # Whoever made the bundle says how its session ended; the verdicts say what that is worth.
    ended = report.session.exit_status if report.session.exit_status in (None, 2, 3) else status
    session = report.session.model_copy(update={"exit_status": ended})
    judged = SessionReport(session=session, selected=tuple(result.id for result in kept), results=tuple(kept))
    output.mkdir(parents=True, exist_ok=True)
    write_session(judged, output)
    write_junit(judged, output / JUNIT_FILE)
