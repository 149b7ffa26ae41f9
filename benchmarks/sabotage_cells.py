"""The cells of the sabotage matrix: how each sabotage is run on a mini case, beside which healthy twin."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.drivers.sabotage import TABLE, Sabotage

ROOT = Path(__file__).resolve().parent.parent

CASES = ("glm", "mobilenetv2", "bert", "vivit", "whisper", "gpt3", "alma", "faster_rcnn")

WHOLE = frozenset({"lr_zero", "labels_shuffled", "eval_on_train_data", "quality_forged", "last_batch_dropped"})
"""These need the length of a healthy run; the others are void from their first windows on, and are cut short."""
SHORT = ("max_samples=1280", "eval_every_samples=640")
QUICK_BASE = ("throughput_warmup_steps=5", "throughput_steps=25")
"""Nobody asks for a speedup here, so its base need not be exact."""

OWN_GUARD = {("mobilenetv2", "eval_in_train_mode"): ("error", "crash")}
"""This case looks for itself, and raises before the driver can tell."""
NOT_BUILT = frozenset(
    {(case, "eval_on_train_data") for case in CASES[3:]} | {("alma", "eval_tenth")} | {("glm", "last_batch_dropped")}
)
"""No such seam in the case; and an epoch of GLM's mini is longer than its run."""

IMBALANCE, LEAST = 1.05, 0.001
"""What the stand-in vendor demands: at most this imbalance of the ranks, at least this many samples a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of the matrix; without a sabotage it is a healthy twin."""

    case: str
    name: str
    """Of the sabotage; empty: healthy."""
    topology: str
    mode: str
    sets: Sequence[str]
    repeat: int
    requality: bool
    status: str
    category: str

    @property
    def shape(self) -> tuple[str, str, str]:
        """What it shares with its twin."""
        return self.case, self.mode, self.topology

    def words(self) -> list[str]:
        """Options of `pytest suite`."""
        words = ["--model", self.case, "--framework", "pytorch", "--preset", "mini", "--topology", self.topology]
        words += ["--mode", self.mode, "--repeat", str(self.repeat)]
        words += ["--sabotage", self.name] if self.name else []
        return words + [word for one in self.sets for word in ("--set", one)]


def twin(cell: Cell) -> Cell:
    """The healthy run of the same shape, at full length."""
    sets = [one for one in cell.sets if one in QUICK_BASE]
    return Cell(
        case=cell.case, name="", topology=cell.topology, mode=cell.mode, sets=sets, repeat=1, requality=cell.requality,
        status="passed", category="",
    )  # fmt: skip


def cells(case: str, names: Sequence[str] = ()) -> Iterator[Cell]:
    """Every sabotage of `names` (none: all) that applies to the mini of `case`."""
    for sabotage in TABLE:
        if (not names or sabotage.name in names) and (case, sabotage.name) not in NOT_BUILT:
            yield _cell(case, sabotage)


def _cell(case: str, sabotage: Sabotage) -> Cell:
    mode = "throughput" if sabotage.mode == "throughput" else "converge"
    status, category = OWN_GUARD.get((case, sabotage.name), (sabotage.status, sabotage.category))
    sets = [] if sabotage.name in WHOLE or mode == "throughput" else list(SHORT)
    sets += ["gradient_accumulation_steps=2"] if sabotage.needs == "accumulation" else []
    sets += QUICK_BASE if sabotage.ranks > 1 and mode == "converge" else ()
    return Cell(
        case=case,
        name=sabotage.name,
        topology="1x2" if sabotage.ranks > 1 else "1x1",
        mode=mode,
        sets=sets,
        repeat=2 if sabotage.needs == "repeats" else 1,
        requality=sabotage.needs == "requality",
        status=status,
        category=category,
    )


def demanding_vendor(folder: Path, cases: Sequence[str]) -> Path:
    """A copy of the vendor cpu below `folder` that also demands a throughput, and balanced ranks of two."""
    vendor = folder / "cpu"
    shutil.copytree(ROOT / "suite/vendors/cpu", vendor)
    for case in cases:
        for topology in ("1x1", "1x2"):
            config = vendor / case / "pytorch" / f"config_hostx{topology}.toml"
            text = config.read_text(encoding="utf-8") if config.exists() else ""
            text += (
                f'\n[preset.mini.mode.throughput.threshold.throughput]\nvalue = {LEAST}\nsource = "any pace at all"\n'
            )
            if topology == "1x2":
                text += '\n[[preset.mini.mode.throughput.check]]\nname = "balanced"\nmetric = "rank_imbalance"\n'
                text += f'op = "<="\nvalue = {IMBALANCE}\nrequired = true\nsource = "half of what a slow rank adds"\n'
            config.write_text(text, encoding="utf-8")
    return vendor
