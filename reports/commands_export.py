"""`python -m reports export | mllog-check`: a session for other tools."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from reports.console import deliver, say
from reports.json_report import SessionReport, read_session
from reports.places import session_folder
from suite.errors import UsageProblem

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

TEXTS = ("csv", "openmetrics", "github", "benchmark-json")
FOLDERS = ("mllog", "tensorboard")


def add_commands(commands: Commands) -> None:
    """Make the verbs known."""
    export = commands.add_parser("export", help="a session for another tool")
    export.add_argument("kind", choices=(*TEXTS, *FOLDERS))
    export.add_argument("path", type=Path, help="session folder")
    export.add_argument("--output", type=Path, metavar="PATH", help="file; of mllog and tensorboard a folder")
    export.set_defaults(run=_export)

    check = commands.add_parser("mllog-check", help="hold MLPerf log files to the rules")
    check.add_argument("path", type=Path, nargs="+", metavar="FILE", help="the logs of one set of runs")
    check.add_argument("--ruleset", help="ask the official checker too, by this rule set, as in 5.0.0")
    check.set_defaults(run=_check)


def _export(arguments: argparse.Namespace) -> int:
    folder = session_folder(arguments.path)
    if arguments.kind in TEXTS:
        deliver(_texts()[arguments.kind](read_session(folder)), arguments.output)
        return 0
    if arguments.output is None:
        raise UsageProblem(f"export {arguments.kind}: many files come out; say where, as in --output {arguments.kind}")
    for path in _written(arguments.kind, folder, arguments.output):
        say(str(path))
    return 0


def _texts() -> Mapping[str, Callable[[SessionReport], str]]:
    from reports.benchmark_json import as_benchmark_json
    from reports.export_github import as_github
    from reports.export_table import as_csv, as_openmetrics

    return dict(zip(TEXTS, (as_csv, as_openmetrics, as_github, as_benchmark_json)))


def _written(kind: str, folder: Path, output: Path) -> list[Path]:
    if kind == "tensorboard":
        from reports.export_tensorboard import write_tensorboard

        return list(write_tensorboard(read_session(folder), folder, output))
    from reports.mllog import write_mllog
    from reports.places import plan_folders

    return [path for plan in plan_folders(folder) for path in write_mllog(plan, output)]


def _check(arguments: argparse.Namespace) -> int:
    from reports.mllog_check import check_files

    problems = check_files(arguments.path)
    for problem in problems:
        say(problem)
    refused = 0
    for path in arguments.path if arguments.ruleset else ():
        from reports.mllog_official import check_officially

        official = check_officially(path, arguments.ruleset)
        refused += not official.accepted
        say(f"{path.name}: rule set {arguments.ruleset}: {'accepted' if official.accepted else official.text}")
    say(f"{len(arguments.path)} files, {len(problems)} problems")
    return 1 if problems or refused else 0
