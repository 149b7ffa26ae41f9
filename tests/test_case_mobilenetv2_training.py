"""MobileNetV2 trains: one gradient however it is shared, an exact evaluation, and broken runs that learn nothing."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from tests.case_mobilenetv2 import CASE, CASE_DIR, one_thread, params, task
from tests.one_case import ROOT


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    with one_thread():
        yield


def made(seed: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, and its model."""
    torch.manual_seed(seed)
    one = task(params("mini", **changes), seed=seed)
    model = one.build()
    one.prepare_data()
    return one, model


def steps(one: Any, model: Any, count: int, *, lr: float = 0.15, shuffled: bool = False, bf16: bool = False) -> Any:
    """The losses of `count` plain steps."""
    optimizer = torch.optim.SGD(one.parameter_groups(model), lr=lr, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    found = []
    for number, batch in zip(range(count), (batch for epoch in range(1, 9) for batch in one.train_batches(epoch))):
        optimizer.param_groups[0]["lr"] = lr * min(1, (number + 1) / 20)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = one.loss(model, one.shuffle_labels(batch, generator) if shuffled else batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def gradients(one: Any, model: Any, batches: list[Any]) -> torch.Tensor:
    """The mean gradient of the batches."""
    model.zero_grad()
    for batch in batches:
        (one.loss(model, batch) / len(batches)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


# The gradient


def test_two_halves_have_the_gradient_of_the_whole_where_statistics_are_fixed() -> None:
    one, model = made()
    steps(one, model, 3)
    whole = next(iter(one.train_batches(1)))
    halves = [{name: value[part] for name, value in whole.items()} for part in (slice(0, 32), slice(32, 64))]
    model = model.double().eval()
    torch.testing.assert_close(gradients(one, model, halves), gradients(one, model, [whole]), rtol=1e-4, atol=1e-7)


def test_statistics_are_those_of_a_ranks_own_images() -> None:
    """In training mode the halves are normalised apart, as each rank does it: a smaller batch is another recipe."""
    one, model = made(dropout=0.0)
    whole = next(iter(one.train_batches(1)))
    halves = [{name: value[part] for name, value in whole.items()} for part in (slice(0, 32), slice(32, 64))]
    model = model.double().train()
    together, apart = gradients(one, model, [whole]), gradients(one, model, halves)
    assert float((together - apart).norm()) > 0.01 * float(together.norm())


# The evaluation


def test_shares_of_any_number_of_ranks_add_up() -> None:
    one, model = made()
    steps(one, model, 25)
    model.eval()
    with torch.no_grad():
        correct, shown = one.evaluate(model)["top1"]
        for world, size in ((3, 100), (7, 64), (1, 500), (1, 33)):
            shares = []
            for rank in range(world):
                share = task(params("mini", eval_batch_size=size), rank=rank, world=world)
                share.prepare_data()
                shares.append(share.evaluate(model)["top1"])
            assert tuple(map(sum, zip(*shares))) == (correct, shown) == (correct, 500)


class Oracle(torch.nn.Module):
    """Scores that a function of the images gives."""

    def __init__(self, scores: Any) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scores(images)


def test_who_knows_all_scores_all_and_who_answers_nan_scores_nothing() -> None:
    one, _ = made(eval_batch_size=64)
    held_out = one.images.held_out
    answers = {bytes(image.numpy()): int(label) for image, label in zip(held_out["images"], held_out["labels"])}

    def knows(images: torch.Tensor) -> torch.Tensor:
        found = [answers.get(bytes(image.numpy()), 0) for image in images]
        return torch.nn.functional.one_hot(torch.tensor(found), 10).float()

    assert one.evaluate(Oracle(knows).eval()) == {"top1": (500, 500)}
    assert one.evaluate(Oracle(lambda images: knows(images) * torch.nan).eval()) == {"top1": (0, 500)}
    zeros = int((held_out["labels"] == 0).sum())
    assert one.evaluate(Oracle(lambda images: torch.eye(10)[0].expand(len(images), 10)).eval()) == {
        "top1": (zeros, 500)
    }


def test_a_model_in_training_mode_is_not_evaluated() -> None:
    one, model = made()
    with pytest.raises(RunProblem, match="evaluated in training mode"):
        one.evaluate(model)
    model.eval()
    model.blocks[7].units[1][1].train()
    with pytest.raises(RunProblem, match="evaluated in training mode"):
        one.evaluate(model)


def test_an_evaluation_leaves_the_statistics_alone_and_repeats() -> None:
    one, model = made()
    steps(one, model, 5)
    model.eval()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        assert one.evaluate(model) == one.evaluate(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# Learning, and not learning


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loss_falls_with_true_labels_alone() -> None:
    found = {
        "true": steps(*made(), 40),
        "shuffled": steps(*made(), 40, shuffled=True),
        "still": steps(*made(), 20, lr=0.0),
    }
    ends = {name: float(np.mean(values[-8:])) for name, values in found.items()}
    assert ends["true"] < 2.0, "the logarithm of 10 is 2.3"
    assert ends["shuffled"] > 2.2
    assert ends["still"] > 2.25


@pytest.mark.slow
@pytest.mark.nightly
def test_bf16_learns_as_fp32_does() -> None:
    """Each of the first twelve losses within 3 %; later ones differ as those of two seeds do."""
    whole, rounded = (steps(*made(dropout=0.0), 12, lr=0.05, bf16=bf16) for bf16 in (False, True))
    np.testing.assert_allclose(rounded, whole, rtol=0.03)
    assert rounded != whole


# The folder


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name


def test_slots_are_those_that_case_toml_declares() -> None:
    declared = tomllib.loads((CASE_DIR / "case.toml").read_text())["extern"]["slots"]
    slots = CASE.train.Classify.default_slots()
    assert {*slots, "optimizer"} == set(declared)
    assert SimpleNamespace(**slots).conv_norm is CASE.model.standard_conv_norm


CONFIGS = sorted((ROOT / "suite/vendors/nvidia/mobilenetv2/pytorch").glob("config_*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_rate_falls_once_an_epoch_whatever_the_batch(path: Path) -> None:
    """lr_step_every counts steps, so each configuration says how many make an epoch."""
    config = tomllib.loads(path.read_text())
    nnodes, nproc = map(int, path.stem.rpartition("_")[2].split("x")[-2:])
    together = config["train_batch_size"] * nnodes * nproc
    assert config["lr_step_every"] == 1_281_167 // together
    mini = config.get("preset", {}).get("mini", {}).get("train_batch_size", 64)
    assert mini * nnodes * nproc == 64


def test_seven_configurations_are_there() -> None:
    machines = [path.stem.removeprefix("config_").split("x", 1) for path in CONFIGS]
    assert [topology for machine, topology in machines if machine == "A100"] == ["1x1", "1x8", "2x8"]
    assert [topology for machine, topology in machines if machine == "H200"] == ["1x1", "1x2", "1x8", "2x8"]
