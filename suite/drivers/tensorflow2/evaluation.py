"""Quality: each rank's share summed exactly over the ranks, and held to the target."""

import numpy

from suite.drivers.asked import Asked, together
from suite.drivers.evaluation import Evaluated, meets, summed

__all__ = ["Evaluated", "evaluate", "meets"]


def evaluate(task, model, control):
    """The quality over all ranks' shards, equal on every rank."""
    before = [(each, each.numpy()) for each in getattr(model, "variables", ()) if not each.trainable]
    task.asked = Asked()
    share = {name: [float(top), float(bottom)] for name, (top, bottom) in task.evaluate(model).items()}
    changed = {id(each) for each, values in before if not numpy.array_equal(each.numpy(), values, equal_nan=True)}
    asked = together(control.gather(task.asked.told))
    return Evaluated(*summed(control.gather(share)), _holders(model, changed), asked)


def _holders(model, changed):
    """How many modules hold what an evaluation has changed.

    A module of TensorFlow has no mode that could be asked for: one that is called as in training shows it by running
    statistics that move.
    """
    if not changed:
        return 0
    modules = (model, *model.submodules)
    return max(1, sum(any(id(part) in changed for part in vars(module).values()) for module in modules))
