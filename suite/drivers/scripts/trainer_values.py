"""Values that a transformers Trainer hands to its callbacks, as the events want them."""

import torch

from suite.drivers.scripts.adapters.hugging_face import NOT_METRICS

_PREFIX = "eval_"


def rows_of(values):
    """Rows of the first tensor among a batch's values."""
    return next((len(value) for value in values if torch.is_tensor(value) and value.dim() > 0), 0)


def measures(metrics):
    """What an evaluation measured, by names without their prefix; its own speed is no measure of the model."""
    found = {name[len(_PREFIX) :]: value for name, value in metrics.items() if name.startswith(_PREFIX)}
    return {name: value for name, value in found.items() if isinstance(value, (int, float)) and name not in NOT_METRICS}


def evaluates(args):
    """Whether the script evaluates while it trains; older releases spell the option another way."""
    return getattr(args, "eval_strategy", getattr(args, "evaluation_strategy", "no")) != "no"
