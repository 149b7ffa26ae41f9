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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sabotage_cells import CASES, ROOT, Cell, cells, demanding_vendor, twin
from suite.drivers.sabotage import BY_NAME
from tests.sabotage.acts import ACTS, Act, Did, train_toys

RUN_S = 1800
"""For one cell, its base and its quality evaluated again."""


class Ended(NamedTuple):
    """How a cell ended."""

    cell: Cell
    status: str
    category: str
    reason: str
    seconds: float

    @property
    def as_named(self) -> bool:
        """Whether that is what the table says."""
        return (self.status, self.category) == (self.cell.status, self.cell.category)

    def row(self) -> str:
        """Of the Markdown table."""
        cell = self.cell
        what = f"`{cell.name}`" if cell.name else "healthy twin"
        ended = f"{self.status}: {self.category}".removesuffix(": ") + ("" if self.as_named else " **(not as named)**")
        reason = self.reason.replace("|", "/")
        return f"| {cell.case} | {what} | {cell.mode} {cell.topology} | {ended} | {reason} |"


def run_cell(cell: Cell, session: Path, vendor: Path) -> Ended:
    """Run one cell into the new folder `session`."""
    begun = time.monotonic()
    words = ["--vendor", "cpu", "--vendor-path", str(vendor), "--session", str(session), "-q", "-p", "no:cacheprovider"]
    _python("pytest", "suite", *words, *cell.words())
    found = sorted(session.glob("*/result.json"))
    if len(found) != 1:
        return Ended(cell, "none", "", f"{len(found)} results: see the session", time.monotonic() - begun)
    if cell.requality:
        _python("fixtures.requality", str(session))
        _python("reports", "rejudge", str(session), "--write")
    outcome: dict[str, Any] = json.loads(found[0].read_text(encoding="utf-8"))["outcome"]
    seconds = time.monotonic() - begun
    return Ended(cell, outcome["status"], outcome["category"], outcome["reason"], seconds)


def _python(module: str, *words: str) -> None:
    """Run a module of the checkout; its exit status is the verdict's, which the result holds too."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    argv = [sys.executable, "-m", module, *words]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode not in (0, 1, 5):
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)


def matrix(chosen: Iterable[Cell], folder: Path, vendor: Path) -> list[Ended]:
    """Every cell and, before the first of its shape, its healthy twin."""
    ended: list[Ended] = []
    twins: set[tuple[object, ...]] = set()
    for cell in chosen:
        healthy = twin(cell)
        run = [cell] if (key := (*healthy.shape, healthy.requality)) in twins else [healthy, cell]
        twins.add(key)
        for one in run:
            ended.append(run_cell(one, folder / f"{len(ended):02}-{one.case}-{one.name or 'healthy'}", vendor))
            print(f"{ended[-1].row()} {ended[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    return ended


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
    day = datetime.datetime.now(datetime.UTC).date()
    head = f"Run on {day}.\n\n| case | broken | run | ended | told |\n|---|---|---|---|---|\n"
    return head + "\n".join(one.row() for one in ended) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """0: every cell ended as its table says; 1: one did not; 4: wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sabotage_matrix", description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES, help="a mini case; default: glm")
    parser.add_argument(
        "--sabotage", action="append", choices=sorted(BY_NAME), default=[], help="default: all, and the acts"
    )
    parser.add_argument("--results", type=Path, help="an empty or new folder that keeps the sessions")
    words = parser.parse_args(arguments)
    if words.results and words.results.exists() and (not words.results.is_dir() or any(words.results.iterdir())):
        print(f"--results {words.results}: not an empty folder; name an empty or a new one", file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory(prefix="sabotage-") as temporary:
        folder = words.results or Path(temporary) / "sessions"
        folder.mkdir(parents=True, exist_ok=True)
        chosen = words.case or ["glm"]
        vendor = demanding_vendor(Path(temporary), chosen)
        ended: list[Ended | Acted] = []
        ended += matrix((cell for case in chosen for cell in cells(case, words.sabotage)), folder, vendor)
        if not words.sabotage:
            ended += acts(Path(temporary))
    print(table(ended))
    return int(not all(one.as_named for one in ended))


if __name__ == "__main__":
    sys.exit(main())
