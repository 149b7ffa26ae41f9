"""The modules of the case bert/pytorch as its train.py sees them, without leaving names like `model` behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.one_case import OneCase, qualities

THE_CASE = OneCase(
    "bert/pytorch", "PretrainBert", quality={"metric": "mlm_accuracy", "better": "higher", "target": 0.99}, limit_s=300
)
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, task, drive = THE_CASE.params, THE_CASE.task, THE_CASE.drive

TINY_FULL = {
    "num_layers": 2,
    "hidden_size": 32,
    "feed_size": 64,
    "num_heads": 2,
    "vocab_size": 200,
    "max_positions": 64,
    "sequence_length": 64,
    "max_predictions": 10,
    "pack_multiple": 0,
    "train_batch_size": 4,
    "eval_batch_size": 4,
    "global_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "init_checkpoint": "",
    "precision": "fp32",
}
"""The preset full with the sizes of a toy."""
PLAIN = {"dropout": 0.0, "attention_dropout": 0.0}


def random_sequences(lengths: list[int], seed: int = 0) -> Any:
    """Random sequences of these lengths with up to five masked places each."""
    random = np.random.default_rng(seed)
    count, widest, length = len(lengths), max(lengths), np.array(lengths)
    tokens = random.integers(5, 200, (count, widest))
    allowed = (np.arange(widest) > 0) & (np.arange(widest) < length[:, None])
    counts = random.integers(1, 6, count)
    hidden, places, ids = CASE.masking.hide(tokens, allowed, counts, CASE.masking.Words(4, 5, 200), random)
    segments = np.arange(widest) >= length[:, None] // 2
    return CASE.sequences.from_padded(hidden, segments, length, places, ids, random.integers(0, 2, count))


def as_lists(sequences: Any) -> list[tuple[Any, ...]]:
    """One tuple a sequence: what it is, whatever holds it."""
    names = ("tokens", "segments", "places", "ids", "next_class")
    rows = (sequences.rows(i, i + 1) for i in range(len(sequences)))
    return [tuple(tuple(np.ravel(getattr(row, name)).tolist()) for name in names) for row in rows]


def accuracies(events: list[dict[str, Any]]) -> list[float]:
    """The masked-word accuracy of every evaluation."""
    return qualities(events, "mlm_accuracy")
