"""The endless stream of a rank's micro-batches over the epochs, each with its counts and its place."""

from typing import Any, NamedTuple

import torch

from suite.drivers.events import RunProblem

SABOTAGES = ("labels_shuffled", "gradients_not_averaged")


class Micro(NamedTuple):
    """One micro-batch of this rank."""

    batch: Any
    samples: int
    tokens: int
    epoch: int
    """From 1."""
    index: int
    """Place in its epoch, from 0."""


def epochs(task, epoch=1, skip=0):
    """Micro-batches from `epoch` on, after its first `skip`; ranks may differ in the length of an epoch."""
    while True:
        index = skip
        for batch in task.train_batches(epoch, skip):
            yield _count(task, batch, epoch, index)
            index += 1
        if index == 0:
            raise RunProblem(
                f"rank {task.rank} has no training batch in epoch {epoch}: lower train_batch_size or use fewer ranks"
            )
        epoch, skip = epoch + 1, 0


def synthetic(task):
    """Micro-batches of random data, all of one epoch."""
    for index, batch in enumerate(task.synthetic_batches()):
        yield _count(task, batch, 1, index)
    raise RunProblem("Task.synthetic_batches ended: it must yield for ever")


def _count(task, batch, epoch, index):
    # Counted on the host before the copy: a count on the device would wait for it.
    counts = task.count(batch)
    return Micro(batch, int(counts["samples"]), int(counts["tokens"]), epoch, index)


def shuffled(micros, task, seed):
    """The same micro-batches with their labels shuffled: a run broken on purpose."""
    for micro in micros:
        generator = torch.Generator().manual_seed((seed + micro.epoch * 1_000_003 + micro.index) % 2**31)
        yield micro._replace(batch=task.shuffle_labels(micro.batch, generator))
