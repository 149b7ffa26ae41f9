"""The modules of the case alma/pytorch as its train.py sees them, without leaving names like `model` behind."""

from __future__ import annotations

from typing import Any

from tests.one_case import OneCase, qualities

THE_CASE = OneCase(
    "alma/pytorch", "Translate", quality={"metric": "chrf", "better": "higher", "target": 101.0}, limit_s=900
)
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, run_json, drive = THE_CASE.params, THE_CASE.run_json, THE_CASE.drive

TINY: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "feed_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "max_positions": 48,
    "sequence_length": 48,
    "max_answer": 16,
    "max_source": 32,
    "pad_multiple": 0,
    "lora_rank": 4,
    "init_std": 0.2,
    "init_checkpoint": "",
    "train_batch_size": 4,
    "eval_batch_size": 3,
    "gradient_accumulation_steps": 1,
    "precision": "fp32",
}
"""Any preset with the sizes of a toy."""


def task(values: dict[str, Any], *, mode: str = "throughput", **of_run: Any) -> Any:
    """The case's task with its standard slots."""
    return THE_CASE.task(values, mode=mode, preset="mini", resume=None, **of_run)


def scores(events: list[dict[str, Any]]) -> list[float]:
    """chrF of every evaluation."""
    return qualities(events, "chrf")
