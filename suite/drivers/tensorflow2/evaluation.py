"""Quality: each rank's share summed exactly over the ranks, and held to the target."""

import math

from suite.drivers.events import RunProblem


def evaluate(task, model, control):
    """{name: value} over all ranks' shards, equal on every rank."""
    share = {name: [float(top), float(bottom)] for name, (top, bottom) in task.evaluate(model).items()}
    everyone = control.gather(share)
    names = sorted(everyone[0])
    if any(sorted(other) != names for other in everyone):
        raise RunProblem("the ranks evaluated different metrics: Task.evaluate must name the same ones on every rank")
    return {name: _ratio([share[name] for share in everyone]) for name in names}


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
