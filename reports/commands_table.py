"""`python -m reports table`: published tables beside what a session measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from reports.console import deliver
from reports.places import LATEST, session_folder
from suite.errors import UsageProblem

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FORMATS = ("text", "md", "json", "html")
SUITE = Path(__file__).parents[1] / "suite"


def add_commands(commands: Commands) -> None:
    """Make the verb known."""
    table = commands.add_parser("table", help="a published table beside what a session measured")
    table.add_argument("path", nargs="?", type=Path, default=LATEST, help=f"session folder ({LATEST})")
    table.add_argument("--format", choices=FORMATS, default="text")
    table.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    table.add_argument("--vendor-path", action="append", type=Path, default=[], metavar="DIR", help="as to pytest")
    table.set_defaults(run=_table)


def _table(arguments: argparse.Namespace) -> int:
    from reports.json_report import read_session
    from reports.published import FORMATS as WRITERS
    from reports.published import published_tables
    from suite.catalog import load_catalog

    folder = session_folder(arguments.path)
    tables = published_tables(read_session(folder).results, load_catalog(SUITE, arguments.vendor_path))
    if not tables:
        raise UsageProblem(
            f"{folder}: no plan of it belongs to a published table; a case names its own as [table.NAME] in case.toml"
        )
    deliver(WRITERS[arguments.format](tables), arguments.output)
    return 0
