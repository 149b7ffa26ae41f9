"""The endless stream of a rank's micro-batches over the epochs, each with its counts and its place."""

from typing import Any, NamedTuple

import numpy

from suite.drivers.events import RunProblem
from suite.drivers.sabotage import known_to

SABOTAGES = known_to("tensorflow2")


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


def epochs(task, epoch=1, skip=0):
    """Micro-batches from `epoch` on, after its first `skip`."""
    while True:
        index, held = skip, None  # one is held back: only the end of an epoch shows which is its last
        for batch in task.train_batches(epoch, skip):
            if held is not None:
                yield counted(task, held, epoch, index - 1)
            held = batch
            index += 1
        if held is not None:
            yield counted(task, held, epoch, index - 1, True)
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
    """The Micro of a batch."""
    counts = task.count(batch)
    return Micro(batch, int(counts["samples"]), int(counts["tokens"]), epoch, index, last)


def shuffled(micros, task, seed):
    """The same micro-batches with their labels shuffled: a run broken on purpose."""
    for micro in micros:
        generator = numpy.random.default_rng([seed, micro.epoch, micro.index])
        yield micro._replace(batch=task.shuffle_labels(micro.batch, generator))
