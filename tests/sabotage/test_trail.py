"""Fingerprints of micro-batches: equal for equal data, however it lies in memory, and next to nothing to compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from suite.drivers.pytorch.batches import Micro
from suite.drivers.pytorch.trail import fingerprint, marked
from suite.drivers.trail import REMEMBERED, Trail


def micro(batch: Any, epoch: int = 1) -> Micro:
    """A marked micro-batch."""
    return next(marked([Micro(batch, 4, 0, epoch, 0)]))


def test_equal_data_has_one_fingerprint_however_it_lies() -> None:
    values = torch.randn(40, 30, 20, generator=torch.Generator().manual_seed(1))
    turned = values.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not turned.is_contiguous() and fingerprint({"x": values}) == fingerprint({"x": turned})
    assert fingerprint([values]) == fingerprint({"x": values.clone()})


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_other_data_has_another(kind: torch.dtype) -> None:
    ones = torch.ones(8, 8).to(kind)
    other = ones.clone()
    other[3, 3] = 0
    assert fingerprint({"x": ones, "n": 3}) == fingerprint({"x": ones.clone(), "n": 3})
    assert fingerprint({"x": ones}) != fingerprint({"x": other})
    assert fingerprint({"x": torch.tensor(3)}) != fingerprint({"x": torch.tensor(4)})
    assert len(fingerprint({"x": torch.zeros(0)})) == 8


def test_only_what_came_before_in_the_same_epoch_is_repeated() -> None:
    trail, one, two = Trail(), {"x": torch.zeros(3)}, {"x": torch.ones(3)}
    for batch, epoch in ((one, 1), (two, 1), (one, 1), (one, 2), (two, 2)):
        trail.note(micro(batch, epoch))
    told = trail.take()
    assert told["repeated"] == 1 and len(told["data"]) == 16
    trail.note(micro(one, 2))
    assert trail.take()["repeated"] == 1, "a window remembers those before it"


def test_the_order_of_the_data_is_in_the_windows_digest() -> None:
    trails = Trail(), Trail()
    for trail, values in zip(trails, ((0, 1), (1, 0))):
        for value in values:
            trail.note(micro({"x": torch.full((3,), value)}))
    assert trails[0].take()["data"] != trails[1].take()["data"]


def test_random_batches_tell_nothing() -> None:
    trail = Trail()
    trail.note(Micro({"x": torch.zeros(3)}, 3, 0, 1, 0))
    assert trail.take() == {}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REMEMBERED * 8 < 1 << 21
    monkeypatch.setattr("suite.drivers.trail.REMEMBERED", 2)
    trail = Trail()
    for value in (1, 2, 3, 3, 1):
        trail.note(micro({"x": torch.full((2,), value)}))
    assert trail.take()["repeated"] == 1, "the third is not remembered, the first is"
