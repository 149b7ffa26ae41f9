"""`python -m tools convert`: from FlagPerf's Python configuration to the suite's TOML, without running a line of it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from suite.errors import UsageProblem
from tools.flagperf_conf import Migration, cases_text, migrate, site_text
from tools.flagperf_config import config_text, convert_config

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_arguments(commands: Commands) -> None:
    """The arguments of `convert`."""
    top = commands.add_parser("convert", help="FlagPerf's configuration -> cases.toml, site.toml, config_*.toml")
    kinds = top.add_subparsers(dest="kind", required=True, metavar="KIND")
    whole = kinds.add_parser("flagperf", help="test_conf.py and cluster_conf.py -> cases.toml and site.toml")
    whole.add_argument("folder", type=Path, metavar="DIR", help="FlagPerf's checkout, or its config folder")
    whole.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")
    whole.add_argument("--force", action="store_true", help="replace files that exist")
    whole.set_defaults(run=convert_flagperf)
    single = kinds.add_parser("flagperf-config", help="a vendor's config_<machine>x<n>x<p>.py -> config_….toml")
    single.add_argument("file", type=Path, metavar="FILE")
    single.add_argument("--model", default="", help="if the path does not name the case")
    single.add_argument("--framework", default="", help="if the path does not name the case")
    single.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: print only)")
    single.add_argument("--force", action="store_true", help="replace a file that exists")
    single.set_defaults(run=convert_flagperf_config)


def convert_flagperf(arguments: argparse.Namespace, root: Path) -> int:
    """Write cases.toml and site.toml, then say what to run."""
    migration = migrate(arguments.folder, root / "suite")
    cases, site = arguments.out / "cases.toml", arguments.out / "site.toml"
    _write({cases: cases_text(migration), site: site_text(migration)}, force=arguments.force)
    _tell([*migration.notes, *(f"{row.key}: {reason}; kept as a comment" for row, reason in migration.refused)])
    print(f"wrote {cases}: {len(migration.rows)} of {len(migration.rows) + len(migration.refused)} rows can run")
    print(f"wrote {site}")
    if not migration.rows:
        print("nothing to run yet: see the notes above")
        return 1
    print(f"run: {command(migration, cases, site)}")
    return 0


def command(migration: Migration, cases: Path, site: Path) -> str:
    """The command line that runs the migrated table, quoted for a shell."""
    argv = [
        "pytest",
        "suite",
        "--vendor",
        migration.vendor,
        "--cases",
        str(cases.resolve()),
        "--site",
        str(site.resolve()),
    ]
    return shlex.join(argv)


def convert_flagperf_config(arguments: argparse.Namespace, root: Path) -> int:
    """Print the converted configuration, or write it below --out."""
    conversion = convert_config(arguments.file, root / "suite", arguments.model, arguments.framework)
    content = config_text(conversion)
    notes = list(conversion.notes)
    if conversion.same:
        notes.append(f"left out, equal to the case's own value: {', '.join(conversion.same)}")
    _tell(notes)
    if arguments.out is None:
        print(content, end="")
        return 0
    target = arguments.out / conversion.name
    _write({target: content}, force=arguments.force)
    print(f"wrote {target}; its place is suite/vendors/{conversion.vendor or '<vendor>'}/{conversion.case}/")
    return 0


def _tell(notes: Iterable[str]) -> None:
    """Notes go to stderr, so that stdout holds the result."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _write(files: dict[Path, str], *, force: bool) -> None:
    """Write all files, or none: an existing one is only replaced with --force."""
    existing = [path for path in files if path.exists()]
    if existing and not force:
        raise UsageProblem(f"{existing[0]}: exists already; say --force to replace it, or --out DIR for another place")
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial")
            partial.write_text(content, encoding="utf-8")
            partial.replace(path)
        except OSError as problem:
            raise UsageProblem(f"{path}: cannot be written: {problem.strerror}; choose another --out") from None
