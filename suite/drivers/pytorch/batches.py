"""The endless stream of a rank's micro-batches over the epochs, each with its counts and its place."""

from typing import Any, NamedTuple

import torch

from suite.drivers.events import RunProblem


class Micro(NamedTuple):
    """One micro-batch of this rank."""

    batch: Any
    samples: int
    tokens: int
    epoch: int
    """From 1."""
    index: int
    """Place in its epoch, from 0."""
    last: bool = False
    """No other follows in its epoch."""
    mark: Any = None
    """Its fingerprint; None: random data."""


def epochs(task, epoch=1, skip=0):
    """Micro-batches from `epoch` on, after its first `skip`; ranks may differ in the length of an epoch."""
    for place, batch in _placed(task.train_batches, task, epoch, skip):
        yield counted(task, batch, *place)


def jobs(task, epoch=1, skip=0):
    """((epoch, index, last), job) of the same micro-batches, which are yet to be built."""
    return _placed(task.batch_jobs, task, epoch, skip)


def _placed(source, task, epoch, skip):
    while True:
        index, held = skip, None  # one is held back: only the end of an epoch shows which is its last
        for item in source(epoch, skip):
            if held is not None:
                yield (epoch, index - 1, False), held
            held = item
            index += 1
        if held is not None:
            yield (epoch, index - 1, True), held
        if index == 0:
            raise RunProblem(
                f"rank {task.rank} has no training batch in epoch {epoch}: lower train_batch_size or use fewer ranks"
            )
        epoch, skip = epoch + 1, 0


def synthetic(task):
    """Micro-batches of random data, all of one epoch."""
    for index, batch in enumerate(task.synthetic_batches()):
        yield counted(task, batch, 1, index)
    raise RunProblem("Task.synthetic_batches ended: it must yield for ever")


def counted(task, batch, epoch, index, last=False):
    """The Micro of a batch on the host: a count on the device would wait for it."""
    counts = task.count(batch)
    return Micro(batch, int(counts["samples"]), int(counts["tokens"]), epoch, index, last)


def shuffled(micros, task, seed):
    """The same micro-batches with their labels shuffled: a run broken on purpose."""
    for micro in micros:
        generator = torch.Generator().manual_seed((seed + micro.epoch * 1_000_003 + micro.index) % 2**31)
        yield micro._replace(batch=task.shuffle_labels(micro.batch, generator))
