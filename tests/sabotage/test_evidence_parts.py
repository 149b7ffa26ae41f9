"""What drivers share of their evidence, and what needs no framework: fingerprints of arrays, updates, modes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suite.drivers.array_fingerprint import VALUES, of_arrays
from suite.drivers.events import RunProblem
from suite.drivers.tensorflow2.evaluation import evaluate
from suite.drivers.updates import Updates

ONE = np.arange(6.0).reshape(2, 3)
TWO = ONE[::-1]


class Eager:
    """A tensor that shows its memory."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def numpy(self) -> Any:
        return self.values


KINDS: dict[str, Callable[[Any], Any]] = {
    "arrays": lambda x: {"x": x, "n": 3},
    "numbers alone": lambda x: x.astype(int).tolist(),
    "bytes": lambda x: x.astype(np.uint8),
    "booleans": lambda x: x > 2,
    "half precision": lambda x: x.astype(np.float16),
    "complex": lambda x: x + 1j,
    "text": lambda x: x.astype(str),
    "objects": lambda x: x.astype(object),
    "turned": lambda x: (np.tile(x, (100, 100)).T,),
    "eager tensors": lambda x: [Eager(x)],
    "one number": lambda x: x[0, 0],
    "shapes of nothing": lambda x: np.zeros((0, int(x[0, 0]))),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_data_of_any_kind_has_another_fingerprint(name: str) -> None:
    make = KINDS[name]
    one = of_arrays(make(ONE))
    assert one is not None and len(one) == 8 and one == of_arrays(make(ONE.copy()))
    assert one != of_arrays(make(TWO))


def test_equal_arrays_have_one_fingerprint_however_they_lie() -> None:
    values = np.random.default_rng(1).normal(size=(40, 30, 20))
    turned = np.ascontiguousarray(values.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert not turned.flags.c_contiguous and of_arrays(turned) == of_arrays(values)


@pytest.mark.parametrize("rows", [512, 2048])
def test_rows_with_one_first_column_are_not_one_batch(rows: int) -> None:
    one, two = np.random.default_rng(1).integers(3, 1000, (2, rows, 512))
    for batch in (one, two):
        batch[:, 0], batch[:, 256:] = 1, 0
    assert of_arrays({"tokens": one}) != of_arrays({"tokens": two})


def test_the_places_are_chosen_alike_and_without_touching_the_trainings_chance() -> None:
    before, large = np.random.get_state()[1].tolist(), np.arange(VALUES * 3)  # type: ignore[index,union-attr]
    assert of_arrays(large) == of_arrays(large.copy())
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index,union-attr]


def test_what_cannot_be_read_makes_no_two_batches_equal() -> None:
    assert of_arrays({"x": object(), "n": 4}) is None and of_arrays({}) is None


class Optimizer:
    """One that steps; `Twice` steps to a point nearby first."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


class Twice(Optimizer):
    def step(self) -> None:
        super().step()
        super().step()


@pytest.mark.parametrize("make", [Optimizer, Twice])
def test_each_step_is_one_update_whoever_makes_it(make: type[Optimizer]) -> None:
    optimizer = make()
    updates = Updates(optimizer)
    for _ in range(3):
        optimizer.step()
    with updates.uncounted():
        optimizer.step()
    assert (updates.take(), updates.take()) == (3, 0) and optimizer.steps >= 4


def test_a_step_that_fails_is_none() -> None:
    optimizer = SimpleNamespace(step=lambda: 1 / 0)
    updates = Updates(optimizer)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    assert updates.take() == 0


def test_an_optimizer_that_cannot_be_counted_is_refused() -> None:
    class Closed:
        __slots__ = ()

        def step(self) -> None:
            """Nothing can be put in its place."""

    with pytest.raises(
        RunProblem, match=r"slot optimizer: the updates of a Closed cannot be counted .*: let it be set"
    ):
        Updates(Closed())


class Statistic:
    """A variable of a TensorFlow model that does not train."""

    trainable = False

    def __init__(self) -> None:
        self.values = np.array([0.0, np.nan])

    def numpy(self) -> Any:
        return self.values


def model_of(statistic: Statistic) -> Any:
    """Two modules, of which the inner one holds it."""
    inner = SimpleNamespace(mean=statistic)
    return SimpleNamespace(inner=inner, variables=(statistic,), submodules=(inner,))


def test_an_evaluation_that_moves_running_statistics_was_one_in_training_mode() -> None:
    alone = SimpleNamespace(gather=lambda share: [share])
    statistic = Statistic()

    def asked(model: Any) -> Any:
        return {"top1": (1, 4)}

    def asked_in_training(model: Any) -> Any:
        statistic.values = statistic.values + 1
        return asked(model)

    found = evaluate(SimpleNamespace(evaluate=asked), model_of(statistic), alone)
    assert found == ({"top1": 0.25}, {"top1": 4.0}, 0, None)
    assert evaluate(SimpleNamespace(evaluate=asked_in_training), model_of(statistic), alone).training == 1
