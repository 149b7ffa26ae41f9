"""The case vivit/pytorch as its train.py sees itself, and its runs through the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.one_case import OneCase, qualities

HOST = SimpleNamespace(pin=lambda batch: batch, to=lambda batch: batch, torch_device=torch.device("cpu"))
"""What a task asks of the driver's device."""
THE_CASE = OneCase(
    "vivit/pytorch", "Classify", quality={"metric": "top1", "better": "higher", "target": 2.0}, device=HOST
)
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, task = THE_CASE.params, THE_CASE.task
drive = THE_CASE.drive


TINY = {
    "num_frames": 4,
    "image_size": 32,
    "tubelet_size": 8,
    "hidden_size": 32,
    "feed_size": 48,
    "num_layers": 2,
    "num_heads": 2,
    "num_classes": 3,
    "train_clips": 0,
    "init_checkpoint": "",
    "precision": "fp32",
}
"""The preset full with the sizes of a toy."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """On a busy host a second thread costs more than it gives, and one alone computes the same each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_arrays(folder: Path, classes: int = 3, train: int = 5, held_out: int = 2, frames: int = 20) -> Path:
    """A data folder in UCF101's layout, videos as arrays: noise around a brightness for each class."""
    random = np.random.default_rng(0)
    for part, count in (("train", train), ("val", held_out)):
        for number in range(classes):
            where = folder / "UCF101_subset" / part / f"Action{number}"
            where.mkdir(parents=True)
            for index in range(count):
                shape = (frames + index, 40, 50 + index, 3)
                noise = random.integers(0, 40, shape)
                np.savez(where / f"v_{number}_{index}.npz", frames=(noise + 70 * number).astype(np.uint8), fps=25.0)
    return folder


def top1(events: list[dict[str, Any]]) -> list[float]:
    """The metric of every evaluation."""
    return qualities(events, "top1")
