"""More ranks than an evaluation has questions: a rank without any answers none, and nothing falls over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.drivers.pytorch.task import Task
from tests.one_case import ROOT, OneCase, load_modules

HOST = SimpleNamespace(pin=lambda batch: batch, to=lambda batch: batch, torch_device=torch.device("cpu"))
"""What a task asks of the driver's device."""
RANKS = 1001
"""No mini asks as many questions."""
MODELS = sorted(path.parent.name for path in (ROOT / "suite/cases").glob("*/pytorch"))


def task_of(model: str) -> Any:
    """The mini of the case, as its last rank has it."""
    case = OneCase(f"{model}/pytorch", "", quality={}, device=HOST)
    kinds = [kind for kind in vars(case.modules.train).values() if isinstance(kind, type) and issubclass(kind, Task)]
    (case._task,) = (kind.__name__ for kind in kinds if kind.__module__ == "train")
    values = case.params("mini")
    if "global_batch_size" in values:  # of so many ranks, each has its batch
        values["global_batch_size"] = RANKS * values["train_batch_size"] * values["gradient_accumulation_steps"]
    return case.task(values, rank=RANKS - 1, world=RANKS, preset="mini", resume=None)


@pytest.mark.parametrize("model", MODELS)
def test_a_rank_without_questions_answers_none(model: str) -> None:
    task = task_of(model)
    task.prepare_data()
    with torch.no_grad():
        found = task.evaluate(task.build().eval())
    pairs = found.values() if isinstance(found, dict) else [(0, len(found))]
    assert all(pair == (0, 0) for pair in pairs), found


@pytest.mark.parametrize("framework", ["tensorflow2", "paddle"])
def test_digits_beside_pytorch_have_empty_shares_too(framework: str) -> None:
    folder = ROOT / "suite/cases/mobilenetv2" / framework
    modules = load_modules(folder, "data", "digits")
    place = modules.data.Place(RANKS - 1, RANKS)
    digits = modules.digits.Digits(folder / "data" / "digits.npz", image_size=32, seed=1, place=place)
    assert digits.held_out["images"].shape == (0, 32, 32, 1)
    assert list(digits.eval_batches(10)) == []
