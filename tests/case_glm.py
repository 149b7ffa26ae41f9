"""The modules of the case glm/pytorch as its train.py sees them; they leave no name like `data` behind."""

from __future__ import annotations

import json
from pathlib import Path

from tests.one_case import OneCase

THE_CASE = OneCase("glm/pytorch", "FillBlanks", quality={"metric": "accuracy", "better": "higher", "target": 2.0})
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, task = THE_CASE.params, THE_CASE.task

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
