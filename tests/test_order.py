"""The order in which several workers take the tests: nothing is lost, and what takes long is begun first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.order import WAITING, dealt


@dataclass(frozen=True)
class Item:
    """What the order looks at."""

    path: Path
    number: int
    slow: bool

    def get_closest_marker(self, name: str) -> str | None:
        return name if self.slow and name == "slow" else None


def collected(**modules: tuple[int, int]) -> list[Any]:
    """Items of modules of so many quick and so many slow tests."""
    return [
        Item(Path(f"test_{name}.py"), number, slow=number >= quick)
        for name, (quick, slow) in modules.items()
        for number in range(quick + slow)
    ]


def pieces(items: list[Any], workers: int) -> list[list[Any]]:
    """As xdist divides them."""
    found, rest = [], list(items)
    for left in range(workers, 0, -1):
        size = len(rest) // left
        found.append(rest[:size])
        rest = rest[size:]
    return found


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_begins_with_its_share_of_the_slow_modules(workers: int) -> None:
    items = collected(a=(7, 0), b=(2, 1), c=(30, 0), d=(0, 2), e=(3, 1), f=(11, 0), g=(1, 1), h=(2, 0))
    order = dealt(items, workers)
    assert len(order) == len(items) and set(order) == set(items)
    found = pieces(order, workers)
    assert [piece[0].path.stem for piece in found] == ["test_b", "test_d", "test_e", "test_g"][:workers]
    for piece in found:
        quick = [item.path.stem[-1] in "acfh" for item in piece]
        assert quick == sorted(quick), "nothing slow stands behind something quick"
        assert [item.number for item in piece if item.path.stem == "test_e"] in ([], [0, 1, 2, 3])


def test_more_slow_tests_than_a_piece_holds_are_all_there() -> None:
    items = collected(a=(0, 9), b=(1, 0), c=(0, 1))
    order = dealt(items, 3)
    assert len(order) == len(items) and set(order) == set(items)
    assert (order[0].path.stem, order[-1].path.stem) == ("test_a", "test_b")


def test_the_modules_that_wait_are_there_and_come_first() -> None:
    folder = Path(__file__).parent
    assert [name for name in sorted(WAITING) if not (folder / f"{name}.py").is_file()] == []
    items = collected(a=(4, 0), slurm_cluster=(2, 0), b=(4, 0), ssh_hosts=(1, 0))
    found = pieces(dealt(items, 2), 2)
    assert [piece[0].path.stem for piece in found] == ["test_slurm_cluster", "test_ssh_hosts"]


def test_nothing_to_deal() -> None:
    assert dealt([], 4) == []
