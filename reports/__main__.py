"""`python -m reports`: what becomes of sessions and their results; wrong input is one sentence and exit 4."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports import (
    commands_compare,
    commands_export,
    commands_keep,
    commands_table,
    commands_versus,
    html_command,
    requality,
)
from reports.console import say
from reports.gather import Gathered, gather
from reports.json_report import read_session, write_result, write_session
from reports.junit import FILE_NAME as JUNIT_FILE
from reports.junit import write_junit
from reports.load import load
from reports.places import LATEST, existing_folder, is_session, plan_folders, session_folder
from reports.schema import FOLDER, write_schemas
from reports.table import summary, table
from suite.drivers.command_line import Parser
from suite.errors import UsageProblem
from suite.result import Result
from suite.schema_version import check_file

if TYPE_CHECKING:
    from reports.rejudge import Rejudged

OK, FAILED, USAGE, NOTHING = 0, 1, 4, 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        for path in getattr(arguments, "baseline", None) or ():
            if not path.exists():
                raise UsageProblem(f"--baseline {path}: no such file or folder; name what holds baselines or results")
        return int(arguments.run(arguments))
    except UsageProblem as problem:
        say(f"error: {problem}", error=True)
    except BrokenPipeError:
        # The reader, `head` perhaps, has seen enough; Python must not complain about it while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        say(f"error: {error.filename or 'output'}: {error.strerror or error}", error=True)
    return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m reports", description="What comes out of sessions.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    show = commands.add_parser("show", help="print the table of a session, or of one plan")
    show.add_argument("path", nargs="?", type=Path, default=LATEST, help=f"session, plan or run folder ({LATEST})")
    show.set_defaults(run=_show)

    again = commands.add_parser("rejudge", help="judge runs again from their folders; red if anything differs")
    again.add_argument("path", type=Path, help="session, plan or run folder, or a bundle")
    again.add_argument("--baseline", action="append", type=Path, default=[], metavar="PATH", help="as given to pytest")
    again.add_argument("--write", action="store_true", help="keep the new verdict in result.json")
    commands_keep.add_bundle_options(again)
    requality.add_options(again)
    again.set_defaults(run=_rejudge)

    rebuild = commands.add_parser(
        "rebuild", help="make session.json, junit.xml and report/ from journals and result.json"
    )
    rebuild.add_argument("path", type=Path, help="session folder")
    rebuild.add_argument("--no-plots", action="store_true", help="pages with tables only")
    rebuild.set_defaults(run=_rebuild)

    junit = commands.add_parser("junit", help="make junit.xml from session.json")
    junit.add_argument("path", type=Path, help="session folder")
    junit.add_argument("--output", type=Path, metavar="FILE", help="default: junit.xml in the session folder")
    junit.set_defaults(run=_junit)

    schema = commands.add_parser("schema", help="write the JSON schemas of results, sessions and records")
    schema.add_argument("--output", type=Path, default=FOLDER, metavar="DIR", help="default: suite/schemas")
    schema.set_defaults(run=_schema)

    for more in (commands_compare, commands_export, commands_keep, commands_table, commands_versus, html_command):
        more.add_commands(commands)
    return parser


def _show(arguments: argparse.Namespace) -> int:
    folder = existing_folder(arguments.path)
    if (folder / "session.json").exists():
        results: Sequence[Result] = read_session(folder).results
    elif is_session(folder):
        raise UsageProblem(f"{folder}: no session.json yet; make it with `python -m reports rebuild {folder}`")
    else:
        (plan,) = plan_folders(arguments.path)
        results = [load(Result, plan / "result.json")]
    _print(results, folder)
    return OK


def _rejudge(arguments: argparse.Namespace) -> int:
    # Judging needs the whole of the suite's measuring; showing does not.
    from reports.rejudge import rejudge

    requality.check_options(arguments)
    if arguments.path.suffix == ".zip" and arguments.path.is_file():
        return _rejudge_bundle(arguments)
    if arguments.own_plans or arguments.output or arguments.vendor_path:
        raise UsageProblem(f"{arguments.path}: --own-plans, --output and --vendor-path need a bundle; leave them out")
    folders = plan_folders(arguments.path)
    if arguments.requality:
        requality.evaluate_again(_evaluated(arguments.path, folders), arguments)
    judged = [rejudge(folder, arguments.baseline, mend=arguments.write) for folder in folders]
    _tell(judged, existing_folder(arguments.path))
    if arguments.write:
        for plan in judged:
            write_result(plan.result, plan.folder)
        for session in sorted({plan.folder.parent for plan in judged if is_session(plan.folder.parent)}):
            _rebuild_session(session)
    differ = any(plan.differences for plan in judged) and not arguments.write
    return FAILED if differ else _exit_code([plan.result for plan in judged])


def _evaluated(path: Path, folders: Sequence[Path]) -> Path:
    """The session, or the one plan, that `path` names: an evaluation is of all runs of a plan."""
    return existing_folder(path) if len(folders) > 1 or is_session(existing_folder(path)) else folders[0]


def _rejudge_bundle(arguments: argparse.Namespace) -> int:
    from reports.commands_judge import rejudge_bundle

    if arguments.write:
        raise UsageProblem(f"{arguments.path}: --write has nothing to write to; a bundle stays as it is, use --output")
    judged = rejudge_bundle(arguments)
    _tell(judged, arguments.output or arguments.path)
    # By this checkout's own plans, thresholds may well differ from the stored ones: the new verdict is what counts.
    differ = any(plan.differences for plan in judged) and not arguments.own_plans
    return FAILED if differ else _exit_code([plan.result for plan in judged])


def _tell(judged: Sequence[Rejudged], folder: Path) -> None:
    """The table, and what differs from the stored verdicts."""
    _print([plan.result for plan in judged], folder)
    for plan in judged:
        if not plan.differences:
            say(f"{plan.result.id}: the same as the stored result.json")
        for difference in plan.differences:
            say(f"{plan.result.id}: {difference}")


def _rebuild(arguments: argparse.Namespace) -> int:
    folder = session_folder(arguments.path)
    report, problems, _ = _rebuild_session(folder)
    _print(report.results, folder)
    # Last: whatever becomes of the pages, what they are made from is there.
    html_command.make_pages(report, folder, draw=not arguments.no_plots)
    return USAGE if problems else OK


def _junit(arguments: argparse.Namespace) -> int:
    folder = session_folder(arguments.path)
    path = arguments.output or folder / JUNIT_FILE
    write_junit(read_session(folder), path)
    say(str(path))
    return OK


def _schema(arguments: argparse.Namespace) -> int:
    for path in write_schemas(arguments.output):
        say(str(path))
    return OK


def _rebuild_session(folder: Path) -> Gathered:
    """Write session.json and junit.xml of the session in `folder` anew; tells what is missing from them."""
    check_file(folder / "session.json")  # of a later version, it is not ours to replace
    if not any(folder.glob("journal-*.jsonl")):
        raise UsageProblem(f"{folder}: no journal is left to make a report from; keep session.json as it is")
    gathered = gather(folder)
    for problem in (*gathered.problems, *gathered.remarks):
        say(f"report problem: {problem}", error=True)
    write_session(gathered.report, folder)
    write_junit(gathered.report, folder / JUNIT_FILE)
    return gathered


def _exit_code(results: Sequence[Result]) -> int:
    """As pytest's: 1 a failure or error; 0 at least one passed; 5 none of these."""
    statuses = {result.outcome.status for result in results}
    if statuses & {"failed", "error"}:
        return FAILED
    return OK if "passed" in statuses else NOTHING


def _print(results: Sequence[Result], folder: Path) -> None:
    if results:
        say(table(results))
        say("")
    say(f"{summary(results)}; reports: {folder}")


if __name__ == "__main__":
    sys.exit(main())
