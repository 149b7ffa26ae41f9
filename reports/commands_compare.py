"""`python -m reports compare | baseline | gate`: what changed, what it is held against, and whether it may pass."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from reports.console import deliver, say
from suite.errors import UsageProblem, did_you_mean

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

NOTHING = 5


def add_commands(commands: Commands) -> None:
    """Make the verbs known."""
    _add_compare(commands)
    _add_baseline(commands)
    _add_gate(commands)


def _add_compare(commands: Commands) -> None:
    compare = commands.add_parser("compare", help="two sessions, results or baselines beside each other")
    compare.add_argument("old", type=Path, help="session, plan folder, result.json, baseline or folder of baselines")
    compare.add_argument("new", type=Path, help="the same")
    compare.add_argument("--format", choices=("text", "md", "json", "html"), default="text")
    compare.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    compare.add_argument(
        "--across",
        action="append",
        default=[],
        choices=("machine", "measurement_version", "data"),
        help="compare although this differs",
    )
    compare.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="METRIC=D",
        help="relative change that is accepted (throughput_train=1%%, time_to_train_s=5%%)",
    )
    compare.set_defaults(run=_compare)


def _add_baseline(commands: Commands) -> None:
    baseline = commands.add_parser("baseline", help="figures that results are held against")
    verbs = baseline.add_subparsers(required=True, metavar="VERB", parser_class=type(baseline))

    propose = verbs.add_parser("propose", help="write the passed results of a session as proposed baselines")
    propose.add_argument("path", type=Path, help="session, plan folder or result.json")
    propose.add_argument("--folder", type=Path, default=Path("baselines"), help="default: baselines")
    propose.add_argument("--reason", default="", help="why, for the reviewer")
    propose.set_defaults(run=_propose)

    approve = verbs.add_parser("approve", help="let a proposed baseline gate; the one it replaces expires")
    approve.add_argument("path", type=Path, help="the baseline's file")
    approve.add_argument("--by", required=True, help="the reviewer who answers for it")
    approve.add_argument("--expires", default="", metavar="DAY", help="from this day on it no longer gates")
    approve.set_defaults(run=_approve)

    for verb, state in (("expire", "expired"), ("quarantine", "quarantined")):
        end = verbs.add_parser(verb, help=f"make a baseline {state}: it no longer gates")
        end.add_argument("path", type=Path, help="the baseline's file")
        end.add_argument("--reason", required=True)
        end.set_defaults(run=_end, state=state)

    show = verbs.add_parser("show", help="list baselines with their state")
    show.add_argument("path", nargs="?", type=Path, default=Path("baselines"), help="file or folder (baselines)")
    show.set_defaults(run=_show)

    bridge = verbs.add_parser("bridge", help="carry a baseline over an upgrade, by runs of both in turn")
    bridge.add_argument("path", type=Path, help="the approved baseline's file")
    bridge.add_argument("--old", action="append", required=True, type=Path, metavar="SESSION", help="old revision")
    bridge.add_argument("--new", action="append", required=True, type=Path, metavar="SESSION", help="new revision")
    bridge.set_defaults(run=_bridge)


def _add_gate(commands: Commands) -> None:
    gate = commands.add_parser("gate", help="a session as an exit code and a comment")
    gate.add_argument("path", type=Path, help="session folder")
    gate.add_argument("--baseline", action="append", type=Path, default=[], metavar="PATH", help="default: baselines")
    gate.add_argument(
        "--require", action="append", default=[], metavar="CHECK", help="a check that must have passed, or baseline"
    )
    gate.add_argument("--requality", action="store_true", help="every trained quality must have been evaluated again")
    gate.add_argument("--expect", action="append", default=[], metavar="PLAN", help="an id that must be there")
    gate.add_argument("--comment", type=Path, metavar="FILE", help="write the Markdown there")
    gate.set_defaults(run=_gate)


def _compare(arguments: argparse.Namespace) -> int:
    from reports.compare import compare
    from reports.compare_text import FORMATS
    from reports.sides import read_side

    comparison = compare(
        read_side(arguments.old),
        read_side(arguments.new),
        across=arguments.across,
        tolerances=_tolerances(arguments.tolerance),
    )
    deliver(FORMATS[arguments.format](comparison), arguments.output)
    if any(row.verdict == "regression" for row in comparison.gating):
        return 1
    return 0 if any(row.verdict != "inconclusive" for row in comparison.gating) else NOTHING


def _tolerances(texts: list[str]) -> Mapping[str, float]:
    """The default tolerances with those of the command line over them. Raises UsageProblem."""
    from reports.compare import TOLERANCES
    from suite.figures import KEPT

    found = dict(TOLERANCES)
    for text in texts:
        name, _, share = text.partition("=")
        if name not in KEPT:
            raise UsageProblem(
                f"--tolerance {text}: no metric {name!r} is kept for comparing{did_you_mean(name, KEPT)}"
            )
        try:
            value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1:
            raise UsageProblem(f"--tolerance {text}: {share!r} is not a share below one, as in {name}=2%")
        found[name] = value
    return found


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _propose(arguments: argparse.Namespace) -> int:
    from reports.baseline_store import propose

    proposed = propose(arguments.path, arguments.folder, today=_today(), reason=arguments.reason)
    for path in proposed.written:
        say(f"proposed: {path}")
    for sentence in proposed.remarks:
        say(sentence)
    return 0 if proposed.written else NOTHING


def _approve(arguments: argparse.Namespace) -> int:
    from reports.baseline_store import approve

    for sentence in approve(arguments.path, by=arguments.by, today=_today(), expires=arguments.expires):
        say(sentence)
    return 0


def _end(arguments: argparse.Namespace) -> int:
    from reports.baseline_store import end

    end(arguments.path, arguments.state, arguments.reason)
    say(f"{arguments.state}: {arguments.path}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from reports.baseline_store import listing

    say(listing(arguments.path, _today()))
    return 0


def _bridge(arguments: argparse.Namespace) -> int:
    from reports.baseline_bridge import bridge

    say(f"proposed: {bridge(arguments.path, arguments.old, arguments.new, today=_today())}")
    return 0


def _gate(arguments: argparse.Namespace) -> int:
    from reports.gate import gate
    from reports.gate_comment import comment
    from reports.json_report import read_session
    from reports.places import session_folder

    folder = session_folder(arguments.path)
    baselines = arguments.baseline or [path for path in [Path("baselines")] if path.is_dir()]
    decided = gate(
        read_session(folder),
        baselines,
        required=arguments.require,
        expected=arguments.expect,
        requality=arguments.requality,
        folder=folder,
    )
    text = comment(decided)
    if arguments.comment is not None:
        deliver(text, arguments.comment)
    say(text.rstrip("\n") if arguments.comment is None else decided.sentence)
    return decided.code
