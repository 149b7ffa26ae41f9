"""The cells of the sabotage matrix: how each sabotage is run on a mini case, beside which healthy twin."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.drivers.sabotage import TABLE, Sabotage

ROOT = Path(__file__).resolve().parent.parent

CASES = ("glm", "mobilenetv2", "bert", "vivit", "whisper", "gpt3", "alma", "faster_rcnn")

WHOLE = frozenset(
    {"lr_zero", "labels_shuffled", "eval_on_train_data", "eval_tenth", "quality_forged", "last_batch_dropped"}
)
"""These need the length of a healthy run; the others are void from their first windows on, and are cut short.

How much a whole evaluation counts is known of a case only that nobody has changed: `eval_tenth` is run as it is.
"""
SHORT = ("max_samples=1280", "eval_every_samples=640")
QUICK_BASE = ("throughput_warmup_steps=5", "throughput_steps=25")
"""Nobody asks for a speedup here, so its base need not be exact."""

OWN_GUARD = {
    (case, "eval_in_train_mode"): ("error", category)
    for case, category in (("mobilenetv2", "config"), ("bert", "crash"), ("faster_rcnn", "crash"))
}
"""The first looks for itself; the models of the others give losses in training mode, which no evaluation can use."""
PAST_AN_EPOCH = {
    "glm": ("max_samples=9600", "eval_every_samples=9600"),
    "gpt3": ("max_samples=5120", "eval_every_samples=5120", "val_check_interval=160"),
}
"""These meet their targets before an epoch ends, and stop."""
HALF_A_BATCH = {"bert": "train_batch_size=16", "gpt3": "train_batch_size=16"}
"""Of two micro-batches, in cases whose global batch is fixed."""

IMBALANCE, LEAST = 1.05, 0.001
"""What the stand-in vendor demands: at most this imbalance of the ranks, at least this many samples a second."""

RUN_S = 1800
"""For one cell, its base and its quality evaluated again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of the matrix; without a sabotage it is a healthy twin."""

    case: str
    name: str
    """Of the sabotage; empty: healthy."""
    topology: str
    mode: str
    sets: tuple[str, ...]
    repeat: int
    requality: bool
    status: str
    category: str

    @property
    def shape(self) -> tuple[str, str, str]:
        """What it shares with its twin."""
        return self.case, self.mode, self.topology

    @property
    def key(self) -> str:
        """Its name among all cells."""
        return f"{self.case}-{self.name or 'healthy'}-{self.mode}-{self.topology}"

    def words(self) -> list[str]:
        """Options of `pytest suite`."""
        words = ["--model", self.case, "--framework", "pytorch", "--preset", "mini", "--topology", self.topology]
        words += ["--mode", self.mode, "--repeat", str(self.repeat)]
        words += ["--sabotage", self.name] if self.name else []
        return words + [word for one in self.sets for word in ("--set", one)]


def twin(cell: Cell) -> Cell:
    """The healthy run of the same shape, at full length; its quality is evaluated again where one device can say it."""
    sets = tuple(one for one in cell.sets if one in QUICK_BASE)
    requality = (cell.mode, cell.topology) == ("converge", "1x1")
    return Cell(
        case=cell.case, name="", topology=cell.topology, mode=cell.mode, sets=sets, repeat=1, requality=requality,
        status="passed", category="",
    )  # fmt: skip


def with_twins(chosen: Iterable[Cell]) -> Iterator[Cell]:
    """Each cell and, before the first of its shape, its healthy twin."""
    shapes: set[tuple[str, str, str]] = set()
    for cell in chosen:
        if cell.shape not in shapes:
            shapes.add(cell.shape)
            yield twin(cell)
        yield cell


def cells(case: str, names: Sequence[str] = ()) -> Iterator[Cell]:
    """Every sabotage of `names` (none: all) that applies to the mini of `case`."""
    for sabotage in TABLE:
        if not names or sabotage.name in names:
            yield _cell(case, sabotage)


def _cell(case: str, sabotage: Sabotage) -> Cell:
    mode = "throughput" if sabotage.mode == "throughput" else "converge"
    status, category = OWN_GUARD.get((case, sabotage.name), (sabotage.status, sabotage.category))
    sets = [] if sabotage.name in WHOLE or mode == "throughput" else list(SHORT)
    if sabotage.needs == "accumulation":
        sets += ["gradient_accumulation_steps=2", *filter(None, [HALF_A_BATCH.get(case)])]
    sets += PAST_AN_EPOCH.get(case, ()) if sabotage.name == "last_batch_dropped" else ()
    sets += QUICK_BASE if sabotage.ranks > 1 and mode == "converge" else ()
    return Cell(
        case=case,
        name=sabotage.name,
        topology="1x2" if sabotage.ranks > 1 else "1x1",
        mode=mode,
        sets=tuple(sets),
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
            demand(vendor / case / "pytorch" / f"config_hostx{topology}.toml", balanced=topology == "1x2")
    return vendor


def demand(config: Path, *, balanced: bool) -> None:
    """Have a vendor's file ask for a throughput, and for balanced ranks."""
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    text += f'\n[preset.mini.mode.throughput.threshold.throughput]\nvalue = {LEAST}\nsource = "any pace at all"\n'
    if balanced:
        text += '\n[[preset.mini.mode.throughput.check]]\nname = "balanced"\nmetric = "rank_imbalance"\n'
        text += f'op = "<="\nvalue = {IMBALANCE}\nrequired = true\nsource = "half of what a slow rank adds"\n'
    config.write_text(text, encoding="utf-8")
