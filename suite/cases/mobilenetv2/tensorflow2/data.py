"""Order, shards and random batches: what both data sets of this case have in common. NumPy only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

Batch = dict[str, np.ndarray]
"""`images` [B, H, W, colours] in bytes, `labels` [B]."""

RING = 8
"""Random batches of a synthetic run: enough that none is still in a cache when its turn comes again."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """All indices in an order that depends on the seed and the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def shards(order: Sequence[int], batch_size: int, place: Place, skip: int = 0) -> Iterator[Sequence[int]]:
    """This rank's batches of `order`: each global batch is the next batch_size * world_size, cut evenly.

    So the k-th global batch is the same set whatever the number of ranks, as long as its size is. An incomplete last
    one is left out, on all ranks alike.
    """
    together = batch_size * place.world_size
    for first in range(skip * together, len(order) - together + 1, together):
        mine = first + place.rank * batch_size
        yield order[mine : mine + batch_size]


def random_ring(shape: Sequence[int], classes: int, *, seed: int, place: Place) -> Iterator[Batch]:
    """Endless batches of random bytes and labels: RING of them, made once, in turn."""
    random = np.random.default_rng([seed, place.rank])
    ring = [
        {
            "images": random.integers(0, 256, tuple(shape), dtype=np.uint8),
            "labels": random.integers(0, classes, shape[0], dtype=np.int32),
        }
        for _ in range(RING)
    ]
    while True:
        yield from ring
