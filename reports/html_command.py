"""`python -m reports html`: web pages of a session, or one file of it for mail."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from reports.console import say
from reports.json_report import FILE_NAME, SessionReport, read_session
from reports.places import LATEST, session_folder
from suite.errors import UsageProblem

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_commands(commands: Commands) -> None:
    """Make the verb known."""
    html = commands.add_parser("html", help="make web pages of a session")
    html.add_argument("path", nargs="?", type=Path, default=LATEST, help=f"session folder ({LATEST})")
    where = html.add_mutually_exclusive_group()
    where.add_argument("--output", type=Path, metavar="DIR", help="default: report in the session folder")
    where.add_argument("--single-file", type=Path, metavar="FILE", help="one file below 2 MB instead, for mail")
    html.add_argument("--no-plots", action="store_true", help="tables only: seconds instead of minutes for many plans")
    html.set_defaults(run=_html)


def _html(arguments: argparse.Namespace) -> int:
    # Templates and plots are imported only where pages are made.
    from reports.html import write_single_file

    folder = session_folder(arguments.path)
    if not (folder / FILE_NAME).exists():
        raise UsageProblem(f"{folder}: no session.json yet; make it with `python -m reports rebuild {folder}`")
    report, draw = read_session(folder), not arguments.no_plots
    if arguments.single_file is None:
        make_pages(report, folder, arguments.output, draw=draw)
        return 0
    if arguments.single_file.is_dir():
        raise UsageProblem(f"--single-file {arguments.single_file}: a folder; name a file, as in report.html")
    written = write_single_file(report, folder, arguments.single_file, draw=draw)
    _tell(written.path, written.remarks)
    return 0


def make_pages(report: SessionReport, session: Path, output: Path | None = None, *, draw: bool = True) -> None:
    """Write the pages of `report` into `output`, else `report/` of the session, and say where they are."""
    from reports.html import FOLDER, write_pages

    target = session / FOLDER if output is None else output
    if target.exists() and not target.is_dir():
        raise UsageProblem(f"{target}: a file; name a folder for the pages")
    written = write_pages(report, session, target, draw=draw)
    _tell(written.path, written.remarks)


def _tell(path: Path, remarks: tuple[str, ...]) -> None:
    for remark in remarks:
        say(f"report: {remark}", error=True)
    say(str(path))
