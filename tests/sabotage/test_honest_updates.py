"""An honest optimizer of any make is counted once a step: a vendor's subclass, a wrapper, one that steps twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import optimizer, whole
from suite.drivers.pytorch.device import Device
from suite.drivers.pytorch.schedule import Schedule
from tests.driver_toy import PARAMS, RUN

Weights = list[torch.nn.Parameter]


class Derived(torch.optim.AdamW):
    """A vendor's, which lets torch's own do the rest."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Twice(torch.optim.SGD):
    """Steps to a point nearby, and from there (as sharpness-aware ones do)."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return super().step(closure)


class Stubborn(torch.optim.AdamW):
    """Its fast way fails each time, and it takes the slow one."""

    def step(self, closure: Any = None) -> Any:
        try:
            self._fast()
        except NotImplementedError:
            return super().step(closure)

    def _fast(self) -> None:
        super().step(None)
        raise NotImplementedError


class Wrapper:
    """No optimizer of torch's, but one that holds one."""

    def __init__(self, weights: Weights) -> None:
        self.inner = torch.optim.SGD(weights, lr=0.1)
        self.param_groups = self.inner.param_groups

    def step(self) -> None:
        self.inner.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


class Unhooked(torch.optim.Optimizer):
    """Derived from torch's, of which it uses the name only."""

    def __init__(self, weights: Weights) -> None:
        self.inner = torch.optim.SGD(weights, lr=0.1)
        self.param_groups = self.inner.param_groups

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.inner.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


MAKES: dict[str, Callable[[Weights], Any]] = {
    "torch's own": lambda weights: torch.optim.AdamW(weights, lr=0.1),
    "fused": lambda weights: torch.optim.AdamW(weights, lr=0.1, fused=True),
    "derived": lambda weights: Derived(weights, lr=0.1),
    "twice": lambda weights: Twice(weights, lr=0.1),
    "stubborn": lambda weights: Stubborn(weights, lr=0.1),
    "wrapper": Wrapper,
    "unhooked": Unhooked,
    "lamb": lambda weights: optimizer.Lamb(weights, lr=0.1),
}


def stepper(make: Callable[[Weights], Any], scaler: Any = None) -> tuple[optimizer.Stepper, torch.nn.Parameter]:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])  # somebody else has made one before
    device = Device.open(RUN["device"], 0)
    return optimizer.Stepper(make([weight]), Schedule(PARAMS, 8), scaler, 0.0, device), weight


@pytest.mark.parametrize("name", MAKES)
def test_each_step_is_one_update(name: str) -> None:
    made, weight = stepper(MAKES[name])
    for number in range(3):
        weight.square().sum().backward()
        made.step(number)
    assert made.take_counts() == {"skipped": 0, "updates": 3}


@pytest.mark.parametrize("name", ["torch's own", "derived", "twice", "fused"])
def test_a_step_in_secret_and_one_left_out_are_counted_so(name: str) -> None:
    made, weight = stepper(MAKES[name])
    weight.square().sum().backward()
    made.optimizer.step()
    made.step(0)
    assert made.take_counts()["updates"] == 2
    assert made.take_counts()["updates"] == 0


@pytest.mark.parametrize("name", ["derived", "twice", "lamb"])
def test_what_the_loss_scaler_skips_is_skipped_once(name: str) -> None:
    scaler = Device.open(RUN["device"], 0).scaler()
    made, weight = stepper(MAKES[name], scaler)
    for number, factor in enumerate((1.0, float("inf"), 1.0)):
        scaler.scale((weight * factor).sum()).backward()
        made.step(number)
    assert made.take_counts() == {"skipped": 1, "updates": 2}


def test_reading_the_state_of_a_divided_models_optimizer_is_no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch makes a step with a learning rate of 0 to see it: in a checkpoint before the first, and in each resume."""
    monkeypatch.setattr(whole, "is_divided", lambda model: True)
    model = torch.nn.Linear(2, 2)
    made, _ = stepper(lambda _: torch.optim.AdamW(model.parameters(), lr=0.1))
    asked: list[int] = []
    step = made.optimizer.step
    made.optimizer.step = lambda *args, **kwargs: (asked.append(1), step(*args, **kwargs))[1]
    saved = whole.gather(model, made)
    whole.restore(model, made, *saved)
    assert asked, "torch does so no more: uncounted() can go"
    assert made.take_counts()["updates"] == 0


def test_an_optimizer_that_cannot_be_counted_is_refused() -> None:
    class Closed:
        __slots__ = ("param_groups",)

        def step(self) -> None:
            """Nothing can be put in its place."""

    closed = Closed()
    closed.param_groups = [{"params": [], "lr": 0.1}]
    with pytest.raises(
        RunProblem, match=r"slot optimizer: the updates of a Closed cannot be counted .* derive it from"
    ):
        stepper(lambda _: closed)
