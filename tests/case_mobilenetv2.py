"""The case mobilenetv2/pytorch as its train.py sees itself, and its runs through the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.one_case import OneCase, qualities

HOST = SimpleNamespace(pin=lambda batch: batch, to=lambda batch: batch, torch_device=torch.device("cpu"))
"""What a task asks of the driver's device."""
THE_CASE = OneCase(
    "mobilenetv2/pytorch", "Classify", quality={"metric": "top1", "better": "higher", "target": 2.0}, device=HOST
)
CASE, CASE_DIR, DATA_DIR = THE_CASE.modules, THE_CASE.folder, THE_CASE.folder / "data"
params, task = THE_CASE.params, THE_CASE.task
drive = THE_CASE.drive_all


TINY = {"width": 0.25, "last_channels": 64, "image_size": 32, "num_classes": 4, "train_batch_size": 8}
"""The preset full with the sizes of a toy."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """On a busy host a second thread costs more than it gives, and one alone computes the same each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_photographs(folder: Path, classes: int = 4, train: int = 20, held_out: int = 5) -> Path:
    """A data folder in ImageNet's layout: noise around a colour for each class, of different sizes."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", train), ("val", held_out)):
        for number in range(classes):
            where = folder / part / f"n{number:08d}"
            where.mkdir(parents=True)
            colour = torch.tensor([60 + 40 * number, 220 - 50 * number, 40 + 60 * (number % 2)])
            for index in range(count):
                shape = (40 + index, 50 + 3 * index, 3)
                noise = torch.randint(-30, 31, shape, generator=generator)
                pixels = (colour + noise).clamp(0, 255).to(torch.uint8).numpy()
                Image.fromarray(pixels).save(where / f"{part}_{index}.JPEG")
    return folder


def top1(events: list[dict[str, Any]]) -> list[float]:
    """The metric of every evaluation."""
    return qualities(events, "top1")
