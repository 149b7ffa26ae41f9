"""Quality: each rank's share summed exactly over the ranks, and held to the target."""

import torch

from suite.drivers.asked import Asked, together
from suite.drivers.evaluation import Evaluated, meets, summed

__all__ = ["Evaluated", "evaluate", "meets"]


def evaluate(task, model, precision, group):
    """The quality over all ranks' shards, equal on every rank. The model is in training mode afterwards."""
    model.eval()
    task.asked = Asked()
    with torch.no_grad(), precision.autocast():
        share = task.evaluate(model)
    training = sum(module.training for module in model.modules())
    model.train()
    return Evaluated(*_together(task, share, group), training, together(group.gather(task.asked.told)))


def _together(task, share, group):
    """({name: value}, {name: what it counts})."""
    if not isinstance(share, dict):
        records = group.gather(share)
        metrics = task.combine(records)
        return metrics, dict.fromkeys(metrics, sum(map(len, records)))
    return summed(group.gather({name: (float(top), float(bottom)) for name, (top, bottom) in share.items()}))
