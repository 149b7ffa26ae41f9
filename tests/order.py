"""In which order several workers take the tests."""

from __future__ import annotations

from itertools import chain, groupby, islice

import pytest

WAITING = frozenset(
    {"test_container_runs", "test_driver_training", "test_faults_played", "test_requality", "test_slurm_cluster"}
    | {"test_slurm_fake", "test_slurm_resume", "test_slurm_session", "test_ssh_hosts"}
)
"""Modules that take long though no test of theirs is marked as slow: a scheduler's minute, a deadline, a lost host."""


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The same items: of the pieces that `--dist worksteal` hands out each begins with its share of the long modules.

    A module stays whole, for what its tests share is made once; only one that fills up two pieces is divided.
    """
    modules = [list(module) for _, module in groupby(items, key=lambda item: item.path)]
    long: list[list[pytest.Item]] = []
    quick: list[list[pytest.Item]] = []
    for module in modules:
        waits = module[0].path.stem in WAITING or any(item.get_closest_marker("slow") for item in module)
        (long if waits else quick).append(module)
    rest = chain.from_iterable(quick)
    order: list[pytest.Item] = []
    left = len(items)
    for number in range(workers):
        piece = list(chain.from_iterable(long[number::workers]))
        size = left // (workers - number)
        order += [*piece, *islice(rest, max(size - len(piece), 0))]
        left -= size
    return [*order, *rest]
