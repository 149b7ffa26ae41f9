"""Quality: each rank's share summed exactly over the ranks, and held to the target."""

import math
from typing import NamedTuple

import torch

from suite.drivers.events import RunProblem


class Evaluated(NamedTuple):
    """What an evaluation found, and what it was made of."""

    metrics: dict
    counted: dict
    """Name -> what the value is a share of, or how many records it was combined from."""
    training: int
    """Modules that were in training mode at its end: none, in a sound evaluation."""

    def told(self):
        """Keys of `eval_result`."""
        return self._asdict()


def evaluate(task, model, precision, group):
    """The quality over all ranks' shards, equal on every rank. The model is in training mode afterwards."""
    model.eval()
    with torch.no_grad(), precision.autocast():
        share = task.evaluate(model)
    training = sum(module.training for module in model.modules())
    model.train()
    return Evaluated(*_together(task, share, group), training)


def _together(task, share, group):
    """({name: value}, {name: what it counts})."""
    if not isinstance(share, dict):
        records = group.gather(share)
        metrics = task.combine(records)
        return metrics, dict.fromkeys(metrics, sum(map(len, records)))
    everyone = group.gather({name: (float(top), float(bottom)) for name, (top, bottom) in share.items()})
    names = sorted(everyone[0])
    if any(sorted(other) != names for other in everyone):
        raise RunProblem("the ranks evaluated different metrics: Task.evaluate must name the same ones on every rank")
    shares = {name: [share[name] for share in everyone] for name in names}
    return (
        {name: _ratio(shares[name]) for name in names},
        {name: math.fsum(share[1] for share in shares[name]) for name in names},
    )


def _ratio(shares):
    bottom = math.fsum(share[1] for share in shares)
    return math.fsum(share[0] for share in shares) / bottom if bottom else math.nan


def meets(metrics, quality):
    """Whether the case's own metric has reached its target; a number that is not finite never has."""
    name = quality["metric"]
    if name not in metrics:
        have = ", ".join(sorted(metrics)) or "none"
        raise RunProblem(f"Task.evaluate gives no {name!r}, which [quality] metric names (have: {have})")
    value = metrics[name]
    if not math.isfinite(value):
        return False
    return value >= quality["target"] if quality["better"] == "higher" else value <= quality["target"]
