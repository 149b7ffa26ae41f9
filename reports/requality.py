"""`rejudge --requality`: has the models of a session evaluated again, by another program, before it is judged."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.places import plan_folders
from suite.errors import UsageProblem
from suite.requality import FOLDER

ROOT = Path(__file__).parents[1]
DEADLINE_S = 2 * 24 * 3600.0
"""For all models of a session together; each has the deadline of its plan besides."""

PASSED_ON: Mapping[str, str] = {"vendor": "--vendor", "site": "--site", "container": "--container"}
"""Attribute behind `requality_` -> the option of `python -m fixtures.requality`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What says that models are evaluated again, and where."""
    parser.add_argument("--requality", action="store_true", help="first evaluate the final checkpoints again")
    parser.add_argument("--requality-vendor", metavar="NAME", help="whose device evaluates (cpu)")
    parser.add_argument("--requality-site", metavar="FILE", help="site file of the evaluation: container, data")
    parser.add_argument("--requality-container", metavar="NAME", help="none (default), docker or podman")
    parser.add_argument(
        "--requality-data", action="append", default=[], metavar="[CASE=]PATH", help="data folder of the evaluation"
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Raise UsageProblem for a part of the evaluation's options without the one that asks for it."""
    given = [name for name in PASSED_ON if getattr(arguments, f"requality_{name}")]
    given += ["data"] if arguments.requality_data else []
    if given and not arguments.requality:
        raise UsageProblem(f"--requality-{given[0]} is part of an evaluation; say --requality too")


def evaluate_again(path: Path, arguments: argparse.Namespace) -> None:
    """Evaluate what `path` holds. Raises UsageProblem where that cannot be asked for; what did not succeed is judged.

    The evaluation is the fixtures' work, with effects of its own: another program, that shares nothing but folders.
    """
    words = [word for name, option in PASSED_ON.items() if (word := _option(arguments, name, option))]
    words += [f"--data-dir={folder}" for folder in arguments.requality_data]
    code, said = _run([sys.executable, "-m", "fixtures.requality", str(path), *words])
    if code not in (0, 1):
        last = said.strip().splitlines()[-1:] or [f"it left with status {code}"]
        raise UsageProblem(f"--requality: {last[0].removeprefix('error: ')}")


def forget(folder: Path) -> None:
    """Remove what others say that an evaluation has found: it counts only where we have made it ourselves."""
    for plan in plan_folders(folder):
        shutil.rmtree(plan / FOLDER, ignore_errors=True)


def _option(arguments: argparse.Namespace, name: str, option: str) -> str:
    value = getattr(arguments, f"requality_{name}")
    return f"{option}={value}" if value else ""


def _run(command: Sequence[str]) -> tuple[int, str]:
    """(exit status, what it complained of)."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise UsageProblem(
            f"--requality: not done after {DEADLINE_S / 3600:g} h; evaluate fewer plans at once"
        ) from None
    return done.returncode, done.stderr.decode("utf-8", "replace")
