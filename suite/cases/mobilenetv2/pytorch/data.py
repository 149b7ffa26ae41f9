"""Order, shards and batches: what both data sets of this case have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from suite.drivers.asked import Ask

Batch = dict[str, Tensor]
"""`images` [B, H, W, colours] in bytes, `labels` [B]."""

NO_LABEL = -1
"""Label of an image that only fills the shape: no class has it."""

RING = 8
"""Random batches of a synthetic run: enough that none is still in a cache when its turn comes again."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


class Images(Protocol):
    """A data set. Batches hold bytes; the network scales them, on the device."""

    classes: int

    def train_batches(self, epoch: int, batch_size: int, skip: int) -> Iterator[Batch]:
        """This rank's full batches of an epoch, without the first `skip`."""

    def eval_batches(self, batch_size: int, ask: Ask) -> Iterator[Batch]:
        """This rank's share of the evaluation, every image once; the last batch may be short. `ask` hears of each."""


def mix(seed: int, epoch: int) -> int:
    """A seed for one epoch's order and distortions, far from its neighbours'."""
    return (seed * 1_000_003 + epoch * 7_368_787) % 2**31


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """All indices in an order that depends on the seed and the epoch alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(mix(seed, epoch))).tolist()


def shards(order: Sequence[int], batch_size: int, place: Place, skip: int = 0) -> Iterator[Sequence[int]]:
    """This rank's batches of `order`: each global batch is the next batch_size * world_size, cut evenly.

    So the k-th global batch is the same set whatever the number of ranks, as long as its size is. An incomplete last
    one is left out, on all ranks alike.
    """
    together = batch_size * place.world_size
    for first in range(skip * together, len(order) - together + 1, together):
        mine = first + place.rank * batch_size
        yield order[mine : mine + batch_size]


def filled(batch: Batch, size: int) -> Batch:
    """The batch with `size` images, so that a compiled network sees one shape; what is added has no label."""
    missing = size - len(batch["labels"])
    if missing == 0:
        return batch
    images, labels = batch["images"], batch["labels"]
    return {
        "images": torch.cat([images, images.new_zeros((missing, *images.shape[1:]))]),
        "labels": torch.cat([labels, labels.new_full((missing,), NO_LABEL)]),
    }


def random_ring(
    shape: Sequence[int], classes: int, *, seed: int, place: Place, pin: Callable[[Batch], Batch]
) -> Iterator[Batch]:
    """Endless batches of random bytes and labels: RING of them, made and pinned once, in turn.

    Making 38 MB of random bytes for each step would take longer than the step; each is still copied to the device.
    """
    generator = torch.Generator().manual_seed(mix(seed, place.rank))
    ring = [
        pin(
            {
                "images": torch.randint(0, 256, tuple(shape), dtype=torch.uint8, generator=generator),
                "labels": torch.randint(0, classes, (shape[0],), generator=generator),
            }
        )
        for _ in range(RING)
    ]
    while True:
        yield from ring
