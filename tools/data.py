"""`python -m tools data`: are the files of a case there, are they the right ones, and how to get them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from suite.errors import UsageProblem
from tools.data_set import DataSet, Item, find_case, open_data
from tools.fetch import FetchFailed, fetch
from tools.stage import stage

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DAY_S = 24 * 3600.0
DEFAULT_FRAMEWORK = "pytorch"

ENTRY = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); sys.argv[0] = sys.argv.pop(1); "
    "from prepare import main; sys.exit(main(sys.argv[1:]))"
)
"""Runs prepare.py of a folder, its first word, as the case's own code sees its siblings; the second is its name."""


def add_arguments(commands: Commands) -> None:
    """The arguments of `data`."""
    top = commands.add_parser("data", help="status, fetch, verify, prepare, stage the data of a case")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (function, sentence) in ACTIONS.items():
        action = actions.add_parser(name, help=sentence, description=sentence)
        action.add_argument("model", metavar="MODEL")
        action.add_argument("--framework", default=DEFAULT_FRAMEWORK)
        if name != "prepare":
            action.add_argument("--preset", default="", help="only its files (default: of every preset)")
        action.add_argument("--data-dir", type=Path, metavar="DIR", help="the data folder of this case")
        if name == "stage":
            action.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder on the local disk")
        if name in ("fetch", "prepare"):
            action.add_argument(
                "--timeout", type=_seconds, default=DAY_S, metavar="SECONDS", help="give up after (default: a day)"
            )
        action.set_defaults(run=function, takes_rest=name == "prepare")


def _seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 30 * DAY_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, at most 30 days")
    return seconds


def _open(arguments: argparse.Namespace, root: Path) -> DataSet:
    """The data set that the arguments name."""
    if arguments.data_dir is not None and arguments.data_dir.exists() and not arguments.data_dir.is_dir():
        raise UsageProblem(f"--data-dir {arguments.data_dir}: is not a folder; name the folder that holds the files")
    return open_data(root / "suite", arguments.model, arguments.framework, arguments.preset, arguments.data_dir)


def show_status(arguments: argparse.Namespace, root: Path) -> int:
    """Print what is there; 0 if every required file is, with the right size."""
    data = _open(arguments, root)
    if not data.items:
        print(f"{data.case} lists no files")
        return 0
    print(tabulate([_row(item) for item in data.items], headers="keys"))
    return _conclude(
        [item for item in data.items if item.problem()], f"all files of {data.case} are there", data, arguments
    )


def _row(item: Item) -> Mapping[str, str]:
    """One line of the status table."""
    entry = item.entry
    checked = "verified" if item.verified() else "not hashed" if entry.sha256 else "not known"
    return {
        "file": entry.path,
        "preset": ", ".join(entry.presets),
        "state": item.problem() or "present",
        "bytes": f"{entry.bytes:,}" if entry.bytes else "not known",
        "sha256": checked,
        "needed": "required" if entry.required else "optional",
        "licence": entry.licence,
    }


def verify(arguments: argparse.Namespace, root: Path) -> int:
    """Hash what is there; 0 if nothing contradicts data.toml and no required file is missing."""
    data = _open(arguments, root)
    bad: list[Item] = []
    for item in data.items:
        sentence = item.problem()
        if not sentence:
            digest = item.digest()
            if not item.entry.sha256:
                print(f"{item.entry.path}: sha256 {digest}; data.toml knows none, so it is not verified")
                continue
            if digest == item.entry.sha256:
                print(f"{item.entry.path}: verified")
                continue
            sentence = f"sha256 is {digest}, data.toml knows {item.entry.sha256}"
        print(f"{item.entry.path}: {sentence}")
        bad.append(item)
    return _conclude(bad, f"nothing contradicts data.toml of {data.case}", data, arguments)


def fetch_missing(arguments: argparse.Namespace, root: Path) -> int:
    """Fetch what has an address; for the rest, say where it comes from."""
    data = _open(arguments, root)
    left: list[Item] = []
    for item in data.items:
        if not item.problem():
            continue
        entry = item.entry
        if not item.url:
            print(f"{entry.path}: to be had by hand: {entry.source} (licence: {entry.licence})")
            if entry.prepare:
                print(f"  then: {entry.prepare}")
            left.append(item)
            continue
        try:
            size = fetch(
                item.url, item.path, bytes_expected=entry.bytes, sha256=entry.sha256, limit_s=arguments.timeout
            )
            print(f"{entry.path}: fetched {size:,} bytes")
        except FetchFailed as problem:
            print(f"{entry.path}: not fetched: {problem}")
            left.append(item)
    return _conclude(left, f"all files of {data.case} are there", data, arguments)


def _conclude(bad: list[Item], good: str, data: DataSet, arguments: argparse.Namespace) -> int:
    """The closing line and the exit status: 1 if a required file is among `bad`."""
    required = [item for item in bad if item.entry.required]
    if not required:
        print(good if not bad else f"{len(bad)} optional of {len(data.items)} files of {data.case} are absent or wrong")
        return 0
    where = f" in {data.data_dir}" if data.data_dir else ""
    print(f"{data.case}: {len(required)} of {len(data.items)} files are missing or wrong{where}")
    if arguments.action == "status":
        folder = f" --data-dir {data.data_dir}" if data.data_dir else ""
        print(f"get them: python -m tools data fetch {arguments.model}{folder}")
    return 1


def prepare(arguments: argparse.Namespace, root: Path) -> int:
    """Run the case's prepare.py in an interpreter of its own; options that are not ours are handed to it."""
    case_dir = find_case(root / "suite", arguments.model, arguments.framework)
    if not (case_dir / "prepare.py").is_file():
        raise UsageProblem(
            f"{arguments.model}/{arguments.framework}: the case has no prepare.py, its data is used as it comes"
        )
    framework = f" --framework {arguments.framework}" if arguments.framework != DEFAULT_FRAMEWORK else ""
    name = f"python -m tools data prepare {arguments.model}{framework} --"  # what its --help is asked by
    argv = [sys.executable, "-c", ENTRY, str(case_dir), name]
    argv += ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
    try:
        status = subprocess.run([*argv, *arguments.rest], cwd=root, timeout=arguments.timeout, check=False).returncode
    except subprocess.TimeoutExpired:
        raise UsageProblem(
            f"prepare.py of {arguments.model} was ended after {arguments.timeout:g} s; say --timeout SECONDS"
        ) from None
    if status:
        print(f"trainmark: prepare.py of {arguments.model} left with {status}", file=sys.stderr)
    # 2 is argparse's own word for a wrong one.
    return {0: 0, 2: 4, 4: 4}.get(status, 1)


def stage_files(arguments: argparse.Namespace, root: Path) -> int:
    """Copy the data to a local disk, and say the option that uses the copy."""
    data = _open(arguments, root)
    missing = [item for item in data.items if item.problem() and item.entry.required]
    if missing:
        item = missing[0]
        raise UsageProblem(
            f"{item.path}: {item.problem()}; nothing is staged before python -m tools data status "
            f"{arguments.model} is content"
        )
    if not any(item.stamps and item.present for item in data.items):
        print(f"{data.case}: nothing to stage, its files travel with the repository")
        return 0
    folder, copied = stage(data, arguments.to)
    print(f"{'staged' if copied else 'already staged'}: {folder}")
    print(f"use it: --data-dir {arguments.model}={folder}")
    return 0


ACTIONS: Mapping[str, tuple[Callable[[argparse.Namespace, Path], int], str]] = {
    "status": (show_status, "list the files: present, size, digest; hashes nothing"),
    "fetch": (fetch_missing, "download what has an address; say where the rest comes from"),
    "verify": (verify, "compare the SHA-256 of every file with data.toml; unchanged files are hashed once"),
    "prepare": (prepare, "run the case's prepare.py; further options are its own"),
    "stage": (stage_files, "copy the files to a local disk, in a folder named by their content"),
}
