"""Sabotage on the real mini of a framework beside PyTorch, by the suite's own command; its healthy twins beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sabotage_cells import QUICK_BASE, RUN_S, SHORT, WHOLE, demand
from suite.drivers.sabotage import TABLE, Sabotage
from tests.launched_toy import MODEL
from tests.sabotage.toy import ROOT

OWN_GUARD = {("paddle", "eval_in_train_mode"): ("error", "config")}
"""This case looks for itself, and raises before the driver can tell."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a mini; without a sabotage it is a healthy twin, which must pass."""

    framework: str
    sabotage: Sabotage | None = None
    mode: str = "converge"
    ranks: int = 1

    @property
    def name(self) -> str:
        """Among the cells of its framework."""
        return f"{self.sabotage.name if self.sabotage else 'healthy'}-{self.mode}-1x{self.ranks}"

    @property
    def ends(self) -> tuple[str, str]:
        """(status, category) that must follow."""
        if self.sabotage is None:
            return "passed", ""
        own = self.sabotage.status, self.sabotage.category
        return OWN_GUARD.get((self.framework, self.sabotage.name), own)

    @property
    def requality(self) -> bool:
        """Whether its quality is evaluated again."""
        if self.sabotage is None:
            return (self.mode, self.ranks) == ("converge", 1)
        return self.sabotage.needs == "requality"

    @property
    def is_quick(self) -> bool:
        """Whether a few steps tell all: of a base, and of a throughput that is void from its first windows on."""
        if self.mode == "converge":
            return self.ranks > 1
        return self.sabotage is not None and self.sabotage.mode == "both"

    def words(self) -> list[str]:
        """Options of `pytest suite`."""
        words = ["--model", MODEL, "--framework", self.framework, "--preset", "mini", "--mode", self.mode]
        words += ["--topology", f"1x{self.ranks}"]
        sets = list(QUICK_BASE) if self.is_quick else []
        if self.sabotage is not None:
            words += ["--sabotage", self.sabotage.name, "--repeat", "2" if self.sabotage.needs == "repeats" else "1"]
            sets += SHORT if self.mode == "converge" and self.sabotage.name not in WHOLE else ()
            sets += ["gradient_accumulation_steps=2"] if self.sabotage.needs == "accumulation" else []
        return words + [word for one in sets for word in ("--set", one)]


def cells(framework: str) -> Iterator[Cell]:
    """The healthy twins, then every sabotage that the driver of `framework` knows."""
    for mode in ("converge", "throughput"):
        for ranks in (1, 2):
            yield Cell(framework=framework, mode=mode, ranks=ranks)
    for sabotage in TABLE:
        if framework in sabotage.frameworks:
            # Of two ranks, a run to a quality needs a base; where both modes tell it, the other one is shorter.
            mode = "converge" if sabotage.mode == "converge" else "throughput"
            mode = "converge" if sabotage.mode == "both" and sabotage.ranks == 1 else mode
            yield Cell(framework=framework, sabotage=sabotage, mode=mode, ranks=sabotage.ranks)


def demanding_vendor(folder: Path, framework: str) -> Path:
    """A copy of the vendor cpu that also demands a throughput, and balanced ranks where the driver tells of them."""
    vendor = folder / "cpu"
    shutil.copytree(ROOT / "suite/vendors/cpu", vendor)
    tells = any(sabotage.needs == "imbalance" and framework in sabotage.frameworks for sabotage in TABLE)
    for ranks in (1, 2):
        demand(vendor / MODEL / framework / f"config_hostx1x{ranks}.toml", balanced=ranks > 1 and tells)
    return vendor


def ended(cell: Cell, folder: Path) -> tuple[tuple[str, str], str]:
    """((status, category), reason) of a run into the new folder `folder`."""
    folder.mkdir(parents=True)
    vendor, session = demanding_vendor(folder, cell.framework), folder / "session"
    words = ["--vendor", "cpu", "--vendor-path", str(vendor), "--session", str(session), "-q", "-p", "no:cacheprovider"]
    said = _python("pytest", "suite", *words, *cell.words())
    found = sorted(session.glob("*/result.json"))
    if len(found) != 1:
        return ("none", ""), said[-2000:]
    if cell.requality:
        _python("fixtures.requality", str(session))
        _python("reports", "rejudge", str(session), "--write")
    outcome = json.loads(found[0].read_text(encoding="utf-8"))["outcome"]
    return (outcome["status"], outcome["category"]), outcome["reason"]


def _python(module: str, *words: str) -> str:
    """Run a module of the checkout; what it said. Its exit status is the verdict's, which the result holds too."""
    argv = [sys.executable, "-m", module, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False)
    return done.stdout + done.stderr
