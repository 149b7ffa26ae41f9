"""The modules of the case whisper/pytorch as its train.py sees them, without leaving names like `model` behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.one_case import OneCase, qualities

THE_CASE = OneCase(
    "whisper/pytorch", "AdaptWhisper", quality={"metric": "wer", "better": "lower", "target": 0.0}, limit_s=300
)
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, task, drive = THE_CASE.params, THE_CASE.task, THE_CASE.drive

TINY_FULL = {
    "hidden_size": 32,
    "feed_size": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_heads": 2,
    "vocab_size": 99,
    "max_labels": 24,
    "start_token": 90,
    "end_token": 91,
    "mel_bins": 8,
    "audio_frames": 60,
    "label_multiple": 8,
    "synthetic_labels": 16,
    "max_written": 12,
    "lora_rank": 4,
    "train_batch_size": 2,
    "eval_batch_size": 2,
    "init_checkpoint": "",
    "base_weights": "compute",
    "precision": "fp32",
}
"""The preset full with the sizes of a toy."""


def written(folder: Path, columns: dict[str, list[Any]], name: str = "train-0.parquet") -> Path:
    """A parquet or arrow file of these columns; the test is skipped where nothing can write one."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    table, path = pyarrow.table(columns), folder / name
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=2)
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return path


def make_tokenizer(path: Path, specials: tuple[str, ...]) -> None:
    """A tokenizer of three words: [UNK], one, two, and then the special tokens from 3 on."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"[UNK]": 0, "one": 1, "two": 2}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(path))


def error_rates(events: list[dict[str, Any]]) -> list[float]:
    """The word error rate of every evaluation."""
    return qualities(events, "wer")
