"""LAMB and the polynomial decay of the driver, against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.pytorch import optimizer
from suite.drivers.pytorch.device import Device
from suite.drivers.pytorch.lamb import Lamb
from suite.drivers.pytorch.schedule import Schedule
from tests.driver_toy import PARAMS, RUN


def reference(weight: np.ndarray, gradients: list[np.ndarray], lr: float, decay: float) -> np.ndarray:
    """Algorithm 2 of the paper with the identity for phi, in double precision."""
    m = v = np.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        update = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + decay * weight
        sizes = np.linalg.norm(weight), np.linalg.norm(update)
        ratio = sizes[0] / sizes[1] if decay and min(sizes) > 0 else 1.0
        weight = weight - lr * ratio * update
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_lamb_follows_its_formula(decay: float, start: float) -> None:
    random = np.random.default_rng(0)
    weights = [start * random.normal(size=shape) for shape in ((4, 3), (5, 2, 2))]
    gradients = [[random.normal(size=weight.shape) for _ in range(7)] for weight in weights]
    tensors = [torch.nn.Parameter(torch.tensor(weight)) for weight in weights]
    lamb = Lamb([{"params": tensors, "weight_decay": decay}], lr=0.1)
    for step in range(7):
        for tensor, of_weight in zip(tensors, gradients):
            tensor.grad = torch.tensor(of_weight[step])
        lamb.step()
    for tensor, weight, of_weight in zip(tensors, weights, gradients):
        np.testing.assert_allclose(tensor.detach().numpy(), reference(weight, of_weight, 0.1, decay), rtol=1e-9)


def test_the_first_step_of_a_layer_has_the_size_of_its_weights() -> None:
    weight = torch.nn.Parameter(torch.full((3, 3), 2.0))
    lamb = Lamb([weight], lr=0.5, weight_decay=0.01)
    weight.grad = torch.full((3, 3), 1e-4)
    lamb.step()
    torch.testing.assert_close(weight.detach(), torch.full((3, 3), 1.0))


def test_a_weight_without_gradient_stays() -> None:
    still, moved = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    lamb = Lamb([still, moved], lr=0.1)
    moved.grad = torch.ones(2)
    lamb.step()
    assert torch.equal(still.detach(), torch.ones(2))
    assert not torch.equal(moved.detach(), torch.ones(2))


def test_state_survives_a_checkpoint() -> None:
    torch.manual_seed(0)
    ends = []
    for interrupted in (False, True):
        weight = torch.nn.Parameter(torch.ones(3, 2))
        lamb, gradients = Lamb([weight], lr=0.1), torch.Generator().manual_seed(1)
        for step in range(6):
            if interrupted and step == 3:
                saved = lamb.state_dict()
                lamb = Lamb([weight], lr=0.1)
                lamb.load_state_dict(saved)
            weight.grad = torch.randn(3, 2, generator=gradients)
            lamb.step()
        ends.append(weight.detach().clone())
    assert torch.equal(*ends)


def test_the_driver_makes_it_and_says_that_it_is_not_fused() -> None:
    device = Device.open(RUN["device"], 0)
    assert not optimizer.fused("lamb", device)
    assert device.fallbacks == [
        {
            "what": "fused_optimizer",
            "why": "LAMB has no fused kernel: all tensors of a group are updated together",
        }
    ]
    values = {
        "optimizer": "lamb",
        "lr": 6e-3,
        "weight_decay": 0.01,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "adam_eps": 1e-6,
    }
    made = optimizer.make_optimizer(values, [torch.nn.Parameter(torch.ones(2))], False)
    assert isinstance(made, Lamb)
    assert made.defaults["betas"] == (0.9, 0.98)


def schedule(**changes: Any) -> Schedule:
    values = {
        **PARAMS,
        "lr_schedule": "poly",
        "lr_power": 0.5,
        "warmup_ratio": 0.2843,
        "schedule_steps": 250,
        **changes,
    }
    return Schedule(values, global_batch=67584)


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 1 / 71), (70, 1.0), (71, (1 - 71 / 250) ** 0.5), (249, (1 / 250) ** 0.5), (250, 0.0), (900, 0.0)],
)
def test_polynomial_decay_counts_all_steps(step: int, factor: float) -> None:
    assert schedule()(step) == pytest.approx(factor)


def test_power_one_without_warm_up_is_a_line() -> None:
    made = schedule(lr_power=1.0, warmup_ratio=0.0, warmup_steps=0, schedule_steps=100)
    assert [made(step) for step in (0, 25, 100)] == pytest.approx([1.0, 0.75, 0.0])
