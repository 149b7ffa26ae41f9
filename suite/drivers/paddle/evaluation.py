"""Quality: each rank's share summed exactly over the ranks, and held to the target."""

import paddle

from suite.drivers.asked import Asked, together
from suite.drivers.evaluation import Evaluated, meets, summed

__all__ = ["Evaluated", "evaluate", "meets"]


def evaluate(task, model, precision, group):
    """The quality over all ranks' shards, equal on every rank. The model is in training mode afterwards."""
    model.eval()
    task.asked = Asked()
    with paddle.no_grad(), precision.autocast():
        share = task.evaluate(model)
    training = sum(layer.training for layer in model.sublayers(include_self=True))
    model.train()
    # As text of hexadecimal digits a number is itself again, also where it is not finite.
    everyone = group.gather({name: [float(part).hex() for part in parts] for name, parts in share.items()})
    shares = [{name: [float.fromhex(part) for part in parts] for name, parts in one.items()} for one in everyone]
    return Evaluated(*summed(shares), training, together(group.gather(task.asked.told)))
