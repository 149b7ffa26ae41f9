"""Fingerprints of whatever an honest case may train on: none is equal by its shape, and none ends the run."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from suite.drivers.pytorch.trail import VALUES, fingerprint


@dataclasses.dataclass
class Pair:
    """A batch of a class of its own."""

    x: Any
    y: Any


ONE, TWO = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).flip(1)
KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a dataclass": lambda x: Pair(x, 1),
    "a mapping that is no dict": lambda x: UserDict(x=x),
    "text": lambda x: {"text": ["a", str(x)]},
    "numbers alone": lambda x: x.int().flatten().tolist(),
    "arrays": lambda x: {"x": x.numpy()},
    "arrays of text": lambda x: {"x": x.numpy().astype(str)},
    "arrays turned round": lambda x: {"x": x.numpy()[::-1]},
    "shapes of nothing": lambda x: torch.zeros(0, int(x[0, 0])),
    "sparse": torch.Tensor.to_sparse,
    "sparse by rows": torch.Tensor.to_sparse_csr,
    "sparse by columns": torch.Tensor.to_sparse_csc,
    "nested": lambda x: torch.nested.nested_tensor([x, ONE[:1]]),
    "conjugate": lambda x: torch.complex(ONE, x).conj(),
    "with a gradient": lambda x: x.clone().requires_grad_(),
    "in shared memory": lambda x: x.clone().share_memory_(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.quint8),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_other_data_of_any_kind_has_another_fingerprint(name: str) -> None:
    make = KINDS[name]
    assert fingerprint(make(ONE)) == fingerprint(make(ONE)) is not None
    assert fingerprint(make(ONE)) != fingerprint(make(TWO))


@pytest.mark.parametrize("rows", [512, 1024, 2048, 4096])
def test_rows_with_one_first_column_are_not_one_batch(rows: int) -> None:
    """Every sentence begins with one word: at equal distances, nothing else may be seen."""
    generator = torch.Generator().manual_seed(1)
    one, two = (torch.randint(3, 1000, (rows, 512), generator=generator) for _ in range(2))
    for batch in (one, two):
        batch[:, 0], batch[:, 256:] = 1, 0
    assert fingerprint({"tokens": one}) != fingerprint({"tokens": two})


def test_the_places_are_chosen_alike_and_without_touching_the_trainings_chance() -> None:
    state, large = torch.random.get_rng_state(), torch.arange(VALUES * 3)
    assert fingerprint(large) == fingerprint(large.clone())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("unreadable", [object(), torch.zeros(3, device="meta")], ids=["object", "meta"])
def test_what_cannot_be_read_makes_no_two_batches_equal(unreadable: Any) -> None:
    assert fingerprint({"x": unreadable, "n": 4}) is None


class OnDevice(torch.Tensor):
    """Stands for one whose memory is a device's: whoever takes its pointer without a copy is told."""

    copied = False

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        """Its values on the host."""
        OnDevice.copied = True
        return self.as_subclass(torch.Tensor)

    def data_ptr(self) -> int:
        raise AssertionError("a device's memory")


def test_a_batch_that_lies_on_a_device_is_copied_not_read_in_place() -> None:
    assert fingerprint({"x": ONE.as_subclass(OnDevice)}) == fingerprint({"x": ONE})
    assert OnDevice.copied
