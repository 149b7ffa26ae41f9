"""Which clips make a batch, and whose they are: what both data sets of this case have in common.

No torch here: the processes that build batches import this module, and are there at once without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

Batch = dict[str, np.ndarray]
"""`clips` [B, frames, height, width, channels] in bytes, `labels` [B]."""

NO_LABEL = -1
"""Label of a clip that only fills the shape: no class has it."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


class Job(NamedTuple):
    """What one batch is made of; all its chance comes from the epoch and the places in it."""

    epoch: int
    first: int
    """Place of its first clip in the epoch's order."""
    clips: tuple[int, ...]


def jobs(count: int, batch_size: int, place: Place, *, seed: int, epoch: int, skip: int = 0) -> Iterator[Job]:
    """This rank's batches of an epoch over `count` clips, without the first `skip`.

    Each global batch is the next batch_size * world_size of an order that depends on seed and epoch alone, cut evenly:
    the k-th is the same set whatever the number of ranks. The last one is filled from the beginning of the order, as
    the guide's loader does, so an epoch has ceil(count / global batch) steps.
    """
    order = np.random.default_rng((seed, epoch)).permutation(count)
    together = batch_size * place.world_size
    order = np.resize(order, -(-count // together) * together)
    for start in range(skip * together, len(order), together):
        first = start + place.rank * batch_size
        yield Job(epoch, first, tuple(order[first : first + batch_size].tolist()))


def chance(seed: int, job: Job, nth: int) -> np.random.Generator:
    """Random numbers of the nth clip of a job: its own, whichever rank or process has it."""
    return np.random.default_rng((seed, job.epoch, job.first + nth, 1))


def filled(batch: Batch, size: int) -> Batch:
    """The batch with `size` clips, so that a compiled model sees one shape; what is added has no label."""
    clips, labels = batch["clips"], batch["labels"]
    missing = size - len(labels)
    if missing == 0:
        return batch
    return {
        "clips": np.concatenate([clips, np.zeros((missing, *clips.shape[1:]), np.uint8)]),
        "labels": np.concatenate([labels, np.full(missing, NO_LABEL)]),
    }
