"""Optimizers: the standard ones, clipping, and the learning rate of each step."""

import paddle

from suite.drivers.events import RunProblem
from suite.drivers.updates import Updates

NAMES = ("adamw", "adam", "sgd")


def check_name(params):
    """Raises RunProblem for an optimizer that the driver does not have."""
    if params["optimizer"] not in NAMES:
        raise RunProblem(
            f"optimizer = {params['optimizer']!r} is not one of {', '.join(NAMES)}, which this driver has: change"
            " params.optimizer"
        )


def decayed_groups(model, weight_decay):
    """The default groups: matrices decay, biases and norms do not."""
    trained = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(params, groups, clip):
    """The standard optimizer of `params`: the default callable behind the slot `optimizer`."""
    common = {"learning_rate": params["lr"], "parameters": groups, "grad_clip": clip}
    if params["optimizer"] == "sgd":
        return paddle.optimizer.Momentum(momentum=params["momentum"], **common)
    betas = {"beta1": params["adam_beta1"], "beta2": params["adam_beta2"], "epsilon": params["adam_eps"]}
    kind = paddle.optimizer.AdamW if params["optimizer"] == "adamw" else paddle.optimizer.Adam
    return kind(**betas, **common)


class Stepper:
    """One optimizer step: learning rate, clip, step; counts updates."""

    def __init__(self, make, params, groups, schedule):
        limit = params["clip_grad_norm"]
        self.optimizer = make(params, groups, paddle.nn.ClipGradByGlobalNorm(limit) if limit else None)
        self.schedule, self.base = schedule, params["lr"]
        self.lr = self.base
        # Counted where it happens, in the optimizer: whoever leaves a step out, or makes one more, does not count it.
        self.updates = Updates(self.optimizer)

    def step(self, number):
        """Apply the gradients as step `number`, counted from 0."""
        self.lr = self.base * self.schedule(number)
        self.optimizer.set_lr(self.lr)
        self.optimizer.step()
        self.optimizer.clear_grad(set_to_zero=False)

    def state(self):
        """{name: array} for a checkpoint."""
        return {name: value.numpy() for name, value in self.optimizer.state_dict().items() if hasattr(value, "numpy")}

    def load(self, state):
        """Restore what `state` gave; the learning rate is the plan's."""
        self.optimizer.set_state_dict({name: paddle.to_tensor(value) for name, value in state.items()})
