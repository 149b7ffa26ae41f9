"""A rank's micro-batches: the stream is the same in every framework, but for what builds and shuffles them."""

import torch

from suite.drivers.micros import Micro, counted, epochs, placed, synthetic

__all__ = ["Micro", "counted", "epochs", "jobs", "shuffled", "synthetic"]


def jobs(task, epoch=1, skip=0):
    """((epoch, index, last), job) of the same micro-batches, which are yet to be built."""
    return placed(task.batch_jobs, task, epoch, skip)


def shuffled(micros, task, seed):
    """The same micro-batches with their labels shuffled: a run broken on purpose."""
    for micro in micros:
        generator = torch.Generator().manual_seed((seed + micro.epoch * 1_000_003 + micro.index) % 2**31)
        yield micro._replace(batch=task.shuffle_labels(micro.batch, generator))
