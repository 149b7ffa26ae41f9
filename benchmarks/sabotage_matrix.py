"""The sabotage matrix on the real mini cases: `python -m benchmarks.sabotage_matrix [--case glm] [--sabotage NAME]`.

Each sabotage is run by the suite's own command, beside a healthy twin of the same shape, and must end as
suite/drivers/sabotage.py says; then come the acts outside of a driver. Prints the Markdown table that docs/sabotage.md
holds. Exit status 1 if a cell ended in another way.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sabotage_cells import CASES, ROOT, RUN_S, Cell, cells, demanding_vendor, with_twins
from benchmarks.sabotage_ended import Ended, Kept
from suite.drivers.command_line import Parser
from suite.drivers.sabotage import BY_NAME
from tests.sabotage.acts import ACTS, Act, Did, train_toys


def run_cell(cell: Cell, session: Path, vendor: Path) -> Ended:
    """Run one cell into the new folder `session`."""
    begun = time.monotonic()
    words = ["--vendor", "cpu", "--vendor-path", str(vendor), "--session", str(session), "-q", "-p", "no:cacheprovider"]
    _python("pytest", "suite", *words, *cell.words())
    found = sorted(session.glob("*/result.json"))
    if len(found) != 1:
        return Ended(cell, "none", "", f"{len(found)} results: see the session", time.monotonic() - begun, {})
    if cell.requality:
        _python("fixtures.requality", str(session))
        _python("reports", "rejudge", str(session), "--write")
    result: dict[str, Any] = json.loads(found[0].read_text(encoding="utf-8"))
    status, category, reason = (result["outcome"][key] for key in ("status", "category", "reason"))
    seconds = round(time.monotonic() - begun, 1)
    return Ended(cell, status, category, reason, seconds, _where(result["environment"]))


def _where(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Of result.json: on what a cell ran."""
    told = {name: environment.get(name) for name in ("cpu", "cores", "python")}
    return {**told, "torch": environment.get("packages", {}).get("torch"), "day": f"{_today()}"}


def _python(module: str, *words: str) -> None:
    """Run a module of the checkout; its exit status is the verdict's, which the result holds too."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    argv = [sys.executable, "-m", module, *words]
    try:
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(argv)}: not done after {RUN_S} s", file=sys.stderr)
        return
    if done.returncode not in (0, 1, 5):
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)


def matrix(chosen: Iterable[Cell], folder: Path, vendor: Path, kept: Kept) -> list[Ended]:
    """Every cell and, before the first of its shape, its healthy twin; those that others run meanwhile are left out."""
    every = list(with_twins(chosen))
    for cell in every:
        with kept.claim(cell) as ours:
            if not ours:
                continue
            session = folder / cell.key
            ended = run_cell(cell, session, vendor)
            kept.keep(ended, session)
            print(f"{ended.row()} {ended.seconds:.0f} s", file=sys.stderr, flush=True)
    return [ended for ended in map(kept.find, every) if ended is not None]


class Acted(NamedTuple):
    """How an act outside of a driver ended."""

    act: Act
    did: Did

    @property
    def as_named(self) -> bool:
        """Whether that is what its table says."""
        return self.did.ends == self.act.ends

    def row(self) -> str:
        """Of the Markdown table."""
        ended = self.did.ends + ("" if self.as_named else " **(not as named)**")
        return f"| | `{self.act.name}` | outside of a driver | {ended} | {self.did.told.replace('|', '/')} |"


def acts(folder: Path) -> list[Acted]:
    """Every act outside of a driver, on toys that are trained below `folder` first."""
    toys = train_toys(folder / "toys")
    done = []
    for act in ACTS:
        place = folder / act.name
        place.mkdir()
        done.append(Acted(act, act.do(place, toys)))
        print(done[-1].row(), file=sys.stderr, flush=True)
    return done


def table(ended: Iterable[Ended | Acted]) -> str:
    """As Markdown, with the date."""
    head = f"Run on {_today()}.\n\n| case | broken | run | ended | told |\n|---|---|---|---|---|\n"
    return head + "\n".join(one.row() for one in ended) + "\n"


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def main(arguments: list[str] | None = None) -> int:
    """0: every cell ended as its table says; 1: one did not, or is still run elsewhere; 4: wrong usage."""
    words = _parser().parse_args(arguments)
    if words.results and words.results.exists() and (not words.results.is_dir() or any(words.results.iterdir())):
        print(f"--results {words.results}: not an empty folder; name an empty or a new one", file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory(prefix="sabotage-") as temporary:
        folder = words.results or Path(temporary) / "sessions"
        folder.mkdir(parents=True, exist_ok=True)
        cases = words.case or ["glm"]
        chosen = [cell for case in cases for cell in cells(case, words.sabotage)]
        kept = Kept(words.kept or Path(temporary) / "kept")
        ended: list[Ended | Acted] = [*matrix(chosen, folder, demanding_vendor(Path(temporary), cases), kept)]
        missing = len(list(with_twins(chosen))) - len(ended)
        if not words.sabotage:
            ended += acts(Path(temporary))
    print(table(ended))
    if missing:
        print(f"{missing} cells are still run by other programs: run this again for the whole table", file=sys.stderr)
    return int(missing > 0 or not all(one.as_named for one in ended))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks.sabotage_matrix", description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES, help="a mini case; default: glm")
    parser.add_argument(
        "--sabotage", action="append", choices=sorted(BY_NAME), default=[], help="default: all, and the acts"
    )
    parser.add_argument("--results", type=Path, help="an empty or new folder that keeps the sessions")
    parser.add_argument(
        "--kept",
        type=Path,
        help="a folder that keeps how each cell ended: those found there are not run again, and several programs share"
        " the cells that are left",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
