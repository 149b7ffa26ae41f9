"""A rank's micro-batches: the stream is the same in every framework, but for what shuffles their labels."""

import numpy as np

from suite.drivers.micros import Micro, counted, epochs, synthetic

__all__ = ["Micro", "counted", "epochs", "shuffled", "synthetic"]


def shuffled(micros, task, seed):
    """The same micro-batches with their labels shuffled: a run broken on purpose."""
    for micro in micros:
        generator = np.random.default_rng((seed, micro.epoch, micro.index))
        yield micro._replace(batch=task.shuffle_labels(micro.batch, generator))
