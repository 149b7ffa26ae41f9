"""The modules of the case glm/pytorch as its train.py sees them; they leave no name like `data` behind."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CASE_DIR = Path(__file__).resolve().parent.parent / "suite/cases/glm/pytorch"
DATA_DIR = CASE_DIR / "data"


def load_case() -> SimpleNamespace:
    """Every module of the case's folder by name."""
    names = sorted(path.stem for path in CASE_DIR.glob("*.py") if not path.stem.startswith("test_"))
    shadowed = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(CASE_DIR))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(CASE_DIR))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


CASE = load_case()

TINY_FULL = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 2,
    "vocab_size": 200,
    "max_positions": 64,
    "sequence_length": 64,
    "train_choices": 4,
    "eval_choices": 4,
    "max_answer": 8,
    "train_batch_size": 2,
    "eval_batch_size": 2,
    "init_checkpoint": "",
}
"""The preset full with the sizes of a toy."""


def params(preset: str = "full", **changes: Any) -> dict[str, Any]:
    """The parameters of a preset, with changes to keys that exist."""
    case = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    merged = case["params"] | (case["preset"][preset]["params"] if preset != "full" else {})
    assert set(changes) <= set(merged), set(changes) - set(merged)
    return merged | changes


def task(values: dict[str, Any], *, data_dir: Path | None = None, seed: int = 1, rank: int = 0, world: int = 1) -> Any:
    """The case's task with its standard slots."""
    run = SimpleNamespace(
        params=values, seed=seed, data_dir=data_dir and str(data_dir), case_dir=str(CASE_DIR), mode="converge"
    )
    kind = CASE.train.FillBlanks
    return kind(run, None, kind.default_slots(), rank, world)


PASSAGES = (
    ("The river Oder flows past Breslau and Stettin. Anna saw it.", ("Oder", "Breslau", "Stettin", "Anna")),
    ("In Genoa Marco met Lucia. They saw Turin.\n@highlight\nMarco meets Lucia", ("Genoa", "Marco", "Lucia", "Turin")),
)


def write_record(folder: Path) -> Path:
    """A data folder with a tiny ReCoRD in SuperGLUE's form, two passages with two queries each, and a vocabulary."""
    (folder / "ReCoRD").mkdir(parents=True)
    lines = []
    for number, (text, entities) in enumerate(PASSAGES):
        spans = [{"start": text.index(name), "end": text.index(name) + len(name) - 1} for name in entities]
        asked = []
        for index, when in enumerate(("today", "again")):
            answer = {"start": 0, "end": 0, "text": entities[index]}
            asked.append({"query": f"People like @placeholder {when}.", "answers": [answer], "idx": index})
        passage = {"text": text, "entities": [*spans, spans[0]]}
        lines.append(json.dumps({"source": "toy", "passage": passage, "qas": asked, "idx": number}))
    for name in ("train", "val"):
        (folder / "ReCoRD" / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    letters = "abcdefghijklmnopqrstuvwxyz.,-"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / CASE.prepare.VOCABULARY).write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder
