"""What an evaluation of a mini asks: as many things as its target counts; or what was trained on, if broken so."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.asked import Asked, together
from suite.drivers.evaluation import Evaluated
from suite.drivers.pytorch.evaluation import evaluate
from suite.drivers.pytorch.sabotage import CLASSES
from tests import (
    case_alma,
    case_bert,
    case_faster_rcnn,
    case_glm,
    case_gpt3,
    case_mobilenetv2,
    case_vivit,
    case_whisper,
)

CASES = {
    "alma": case_alma,
    "bert": case_bert,
    "faster_rcnn": case_faster_rcnn,
    "glm": case_glm,
    "gpt3": case_gpt3,
    "mobilenetv2": case_mobilenetv2,
    "vivit": case_vivit,
    "whisper": case_whisper,
}


LIGHT: dict[str, dict[str, int]] = {
    "alma": {"base_steps": 1, "num_layers": 1},
    "gpt3": {"num_layers": 1, "hidden_size": 32, "num_heads": 2},
    "glm": {"num_layers": 1, "hidden_size": 32, "num_heads": 2},
    "bert": {"num_layers": 1},
}
"""What answers quickly: the questions are the same."""


class FindsNothing(torch.nn.Module):
    """A detector that looks at no image: which are asked does not depend on what is found in them."""

    def __init__(self) -> None:
        super().__init__()
        self.anywhere = torch.nn.Parameter(torch.zeros(1))

    def forward(self, images: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.zeros(len(images), 1, 4), torch.zeros(len(images), 1), torch.zeros(len(images), 1)


def built(name: str, task: Any) -> Any:
    """The model that is asked; one that would look or write for long is let off it."""
    if name == "faster_rcnn":
        return FindsNothing()
    if name == "alma":
        task._answers = lambda model, prompts: [()] * len(prompts)
    return task.build()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(of: Any, rank: int = 0, world: int = 1, **changes: Any) -> Any:
    """A task of a mini, whose data is not open yet."""
    values = of.params("mini")
    if "global_batch_size" in values:
        changes["global_batch_size"] = 0
    trains = {"mode": "converge"} if of is case_alma else {}
    return of.task(values | changes, seed=3, rank=rank, world=world, **trains)


def evaluated(task: Any, model: Any) -> Evaluated:
    """What the driver tells of an evaluation by this rank alone."""
    group = SimpleNamespace(gather=lambda share: [share])
    return evaluate(task, model, SimpleNamespace(autocast=nullcontext), group)


@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_asks_what_the_target_says(name: str) -> None:
    """The shares of two ranks together too; a tenth is a tenth of each, also where rank 0 prepares the model."""
    of = CASES[name]
    case = tomllib.loads((of.CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    metric, target = case["quality"]["metric"], case["preset"]["mini"]["target"]
    shares, tenths, asked = [], [], []
    for rank in range(2):
        task = made(of, rank, 2, eval_batch_size=5, **LIGHT.get(name, {}))
        model = built(name, task)
        CLASSES["eval_tenth"]().task(task)
        task.prepare_data()
        tenths.append(evaluated(task, model).counted[metric])
        task.evaluate = type(task).evaluate.__get__(task)
        whole = evaluated(task, model)
        shares.append(whole.counted[metric])
        asked.append(whole.asked)
        if rank == 0:
            CLASSES["eval_on_train_data"]().task(task)
            task.prepare_data()
            assert evaluated(task, model).asked not in (None, whole.asked)
    assert sum(shares) == target["counted"]
    assert sum(tenths) == pytest.approx(target["counted"] / 10, rel=0.25)
    assert together(asked) == target["asked"], "of the same data, on every machine"


def broken(of: Any, **changes: Any) -> Any:
    """A task that evaluates what it was trained on."""
    task = made(of, **changes)
    CLASSES["eval_on_train_data"]().task(task)
    task.prepare_data()
    return task


def test_vivit_is_asked_clips_of_its_training() -> None:
    task = broken(case_vivit)
    asked = next(iter(task.clips.eval_batches(8)))
    assert np.array_equal(asked["clips"], task.batch_builder().batch(range(8))["clips"])


def test_faster_rcnn_is_asked_scenes_of_its_training() -> None:
    data = broken(case_faster_rcnn, train_scenes=12, eval_scenes=5).data
    assert data.held_out == data.train[:5]
    for scene, truth in zip(data.train, data.truths):
        assert np.array_equal(scene.boxes, truth.boxes) and np.array_equal(scene.labels, truth.labels)


def test_gpt3_is_asked_text_of_its_training() -> None:
    honest, task = made(case_gpt3), broken(case_gpt3)
    honest.prepare_data()
    asked = task.corpus.held_out
    assert np.array_equal(asked, task.corpus.train[: len(asked)])
    assert len(asked) == len(honest.corpus.held_out) and not np.array_equal(asked, honest.corpus.held_out)


def test_alma_is_asked_phrases_of_its_training() -> None:
    task = broken(case_alma, base_steps=0)
    trained = {example.prompt for example in task.examples}
    assert len(task.held_out) == case_alma.CASE.phrases.HELD_OUT
    assert all(question.prompt in trained for question in task.held_out)


def test_whisper_is_asked_utterances_of_its_training() -> None:
    task = broken(case_whisper)
    asked, said = task.source.held_out.take(task.mine[:3])
    heard, labels = task.source.take(3, 1, task.mine[:3])
    assert torch.equal(asked, heard)
    assert said == [case_whisper.CASE.digits.words_of(one[1:-1]) for one in labels]
    assert len(task.mine) == case_whisper.CASE.digits.EVALUATED


def test_alma_is_asked_the_same_in_either_direction() -> None:
    """A vendor may choose the direction and the tokens."""
    asked = []
    for pair in ("en-de", "de-en"):
        task = made(case_alma, base_steps=0, language_pair=pair)
        task.prepare_data()
        task._answers = lambda model, prompts: [()] * len(prompts)  # what is answered does not matter here
        task.asked = Asked()
        task.evaluate(None)
        asked.append(task.asked.told)
    assert asked[0] == asked[1] and asked[0] is not None
