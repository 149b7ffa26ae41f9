"""`python -m reports versus | equivalence`: two chips beside each other, and the proof of a replaced part."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from reports.console import deliver, say
from suite.errors import UsageProblem

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FORMATS = ("text", "md", "json", "html")
SUITE = Path(__file__).parents[1] / "suite"
NOTHING = 5
SITES = "site file with [price.<machine>]"


def add_commands(commands: Commands) -> None:
    """Make the verbs known."""
    versus = commands.add_parser("versus", help="two chips beside each other: what differs, same recipe, best recipe")
    versus.add_argument("a", type=Path, help="session, results, plan folder, result.json, baseline or folder of them")
    versus.add_argument("b", type=Path, help="the same")
    _shared(versus)
    versus.set_defaults(run=_versus)

    equal = commands.add_parser("equivalence", help="whether B trains as A does; the entry test of a vendor's slot")
    equal.add_argument("a", type=Path, help="session or plan folder of the standard part, or of the other chip")
    equal.add_argument("b", type=Path, help="the same of what is to be proven")
    equal.add_argument("--folder", type=Path, default=Path("baselines"), help="where proofs are kept (baselines)")
    equal.add_argument("--by", default="", metavar="NAME", help="who ran the test, for the proof's source")
    equal.add_argument("--dry-run", action="store_true", help="show the proof, write nothing")
    equal.add_argument("--vendor-path", action="append", type=Path, default=[], metavar="DIR", help="as to pytest")
    _shared(equal)
    equal.set_defaults(run=_equivalence)


def _shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site", action="append", type=Path, default=[], metavar="FILE", help=SITES)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")


def _versus(arguments: argparse.Namespace) -> int:
    from reports.corners import read_corner
    from reports.prices import read_prices
    from reports.versus import versus
    from reports.versus_text import FORMATS as WRITERS
    from suite.catalog import load_catalog

    catalog = load_catalog(SUITE)
    report = versus(read_corner(arguments.a, catalog), read_corner(arguments.b, catalog), read_prices(arguments.site))
    deliver(WRITERS[arguments.format](report), arguments.output)
    lines = [line for duel in report.duels for line in duel.lines]
    told = any(value is not None for line in lines for value in (line.gain, line.at_least, line.at_most))
    return 0 if told else NOTHING


def _equivalence(arguments: argparse.Namespace) -> int:
    from reports.equivalence import equivalence
    from reports.equivalence_text import FORMATS as WRITERS
    from reports.prices import read_prices
    from reports.proof import proofs
    from suite.proofs import keep

    found = equivalence(arguments.a, arguments.b, read_prices(arguments.site))
    report, refused = found.report, None
    if report.verdict == "equivalent":
        today = datetime.now(UTC).date().isoformat()
        try:
            made = proofs(found, arguments.vendor_path, SUITE, by=arguments.by, today=today)
            report = report.model_copy(update={"proofs": made})
        except UsageProblem as problem:
            refused = problem
    deliver(WRITERS[arguments.format](report), arguments.output)
    if refused is not None:
        raise UsageProblem(f"no proof: {refused}")
    if report.proofs and not arguments.dry_run:
        for line in keep(report.proofs, arguments.folder / found.b.plan.vendor / "slots.toml"):
            say(line, error=arguments.format == "json" and arguments.output is None)
    return {"equivalent": 0, "different": 1, "unknown": NOTHING}[report.verdict]
