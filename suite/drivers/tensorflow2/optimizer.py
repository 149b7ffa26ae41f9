"""Optimizers over plain variables: every rank updates its own copy alike, after one exchange of all gradients."""

import tensorflow as tf

from suite.drivers.events import RunProblem

NAMES = ("sgd", "adam", "adamw")


def check_name(params):
    """Raise RunProblem for an optimizer that the driver does not have."""
    if params["optimizer"] not in NAMES:
        raise RunProblem(
            f"optimizer = {params['optimizer']!r} is not one of {', '.join(NAMES)}: change params.optimizer"
        )


def make_optimizer(params, variables, decays):
    """The optimizer of `params`; `decays(variable)` says which are decayed. Made inside the strategy's scope."""
    kind = Momentum if params["optimizer"] == "sgd" else Adam
    return kind(params, variables, [params["weight_decay"] if decays(each) else 0.0 for each in variables])


def _zeros(variables, name):
    return [tf.Variable(tf.zeros_like(each), trainable=False, name=f"{name}/{_plain(each)}") for each in variables]


def _plain(variable):
    return variable.name.partition(":")[0]


class Momentum:
    """SGD with momentum; the decay is part of the gradient."""

    def __init__(self, params, variables, decays):
        self._variables, self._decays, self._momentum = variables, decays, params["momentum"]
        self.state = _zeros(variables, "momentum")

    def apply(self, gradients, rate):
        """One step."""
        for variable, velocity, gradient, decay in zip(self._variables, self.state, gradients, self._decays):
            moved = self._momentum * velocity + gradient + decay * variable
            velocity.assign(moved)
            variable.assign_sub(rate * moved)


class Adam:
    """Adam; as `adamw` the decay is beside the gradient."""

    def __init__(self, params, variables, decays):
        self._variables, self._decays = variables, decays
        self._beta1, self._beta2, self._eps = params["adam_beta1"], params["adam_beta2"], params["adam_eps"]
        self._beside = params["optimizer"] == "adamw"
        self._first, self._second = _zeros(variables, "first"), _zeros(variables, "second")
        self._count = tf.Variable(0.0, trainable=False, name="count")
        self.state = [*self._first, *self._second, self._count]

    def apply(self, gradients, rate):
        """One step."""
        count = self._count + 1.0
        self._count.assign(count)
        scale1, scale2 = 1 - self._beta1**count, 1 - self._beta2**count
        for variable, first, second, gradient, decay in zip(
            self._variables, self._first, self._second, gradients, self._decays
        ):
            if not self._beside:
                gradient = gradient + decay * variable
            mean = self._beta1 * first + (1 - self._beta1) * gradient
            square = self._beta2 * second + (1 - self._beta2) * gradient * gradient
            first.assign(mean)
            second.assign(square)
            change = (mean / scale1) / (tf.sqrt(square / scale2) + self._eps)
            variable.assign_sub(rate * (change + decay * variable if self._beside else change))


def clipped(gradients, limit):
    """All gradients scaled together so that their norm is at most `limit`."""
    return tf.clip_by_global_norm(gradients, limit)[0] if limit else gradients
