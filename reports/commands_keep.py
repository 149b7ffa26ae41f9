"""`python -m reports history | prune | bundle`: what becomes of sessions after their day."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from reports.console import deliver, say
from reports.places import session_folder
from suite.errors import UsageProblem

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

RESULTS = Path("results")


def add_commands(commands: Commands) -> None:
    """Make the verbs known."""
    history = commands.add_parser("history", help="one metric over all sessions")
    history.add_argument("plan", nargs="?", default="*", help="plan id or glob (all)")
    history.add_argument("--metric", default="throughput_train", metavar="NAME", help="default: throughput_train")
    history.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: results")
    history.add_argument("--database", type=Path, metavar="FILE", help="default: history.sqlite in DIR")
    history.add_argument("--rebuild", action="store_true", help="make it anew from the session folders")
    history.set_defaults(run=_history)

    prune = commands.add_parser("prune", help="delete old sessions; baselines' sources and the latest stay")
    prune.add_argument("path", nargs="?", type=Path, default=RESULTS, help="folder of sessions (results)")
    prune.add_argument("--keep", required=True, metavar="D", help="younger ones stay, as in 30d")
    prune.add_argument("--keep-failed", action="store_true", help="sessions with a failure or an error stay")
    prune.add_argument("--baseline", action="append", type=Path, default=[], metavar="PATH", help="default: baselines")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")
    prune.set_defaults(run=_prune)

    bundle = commands.add_parser("bundle", help="a session as one file that others can judge again")
    bundle.add_argument("path", type=Path, help="session folder")
    bundle.add_argument("--output", type=Path, metavar="FILE", help="default: <session id>.zip")
    bundle.add_argument("--public", action="store_true", help="without names of hosts and users, serials and logs")
    bundle.add_argument("--checkpoints", action="store_true", help="with the final checkpoints")
    bundle.add_argument("--baseline", action="append", type=Path, default=[], metavar="PATH", help="as given to pytest")
    bundle.set_defaults(run=_bundle)


def add_bundle_options(parser: argparse.ArgumentParser) -> None:
    """What `rejudge` can be asked of a bundle, beside a folder."""
    parser.add_argument("--own-plans", action="store_true", help="of a bundle: thresholds and base from this checkout")
    parser.add_argument("--vendor-path", action="append", type=Path, default=[], metavar="DIR", help="as to pytest")
    parser.add_argument("--output", type=Path, metavar="DIR", help="of a bundle: write the judged session there")


def _history(arguments: argparse.Namespace) -> int:
    from tabulate import tabulate

    from reports.history import FILE_NAME, rows, trend, update

    database = arguments.database or arguments.results / FILE_NAME
    for problem in update(database, arguments.results, rebuild=arguments.rebuild):
        say(f"left out: {problem}", error=True)
    seen = trend(database, arguments.metric, arguments.plan)
    if not seen:
        raise UsageProblem(f"history {arguments.plan!r}: no session below {arguments.results} has such a plan")
    headers = ("plan", "started", "session", "outcome", arguments.metric, "runs", "change", "fingerprint")
    say(str(tabulate(list(rows(seen)), headers=headers, tablefmt="simple", disable_numparse=True)))
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    from reports.prune import Rules, choose, duration, prune

    baselines = arguments.baseline or [path for path in [Path("baselines")] if path.is_dir()]
    rules = Rules(duration(arguments.keep), arguments.keep_failed, datetime.now(UTC))
    choices = choose(arguments.path, rules, baselines)
    for choice in choices:
        say(f"{'goes' if choice.goes else 'stays'}: {choice.folder}: {choice.why}")
    if not arguments.dry_run:
        say(f"deleted: {sum(1 for _ in prune(choices))} of {len(choices)}")
    return 0


def _bundle(arguments: argparse.Namespace) -> int:
    from reports.bundle import pack
    from reports.json_report import read_session

    folder = session_folder(arguments.path)
    output = arguments.output or Path(f"{read_session(folder).session.id}.zip")
    packed = pack(
        folder, output, public=arguments.public, checkpoints=arguments.checkpoints, baselines=arguments.baseline
    )
    deliver(f"{packed.path}: {packed.plans} plans, sha256 {packed.sha256}", None)
    for sentence in packed.left_out:
        say(f"left out: {sentence}")
    if arguments.public:
        say("read it before it leaves your house: a name that no file marks as one is not found")
    return 0
