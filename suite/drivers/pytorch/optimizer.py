"""Optimizers: fused where the device has it, the loss scaler, clipping, and the count of skipped steps."""

import torch

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import pieces
from suite.drivers.pytorch.lamb import Lamb
from suite.drivers.pytorch.updates import Updates

CLIP_EPS = 1e-6
"""As in torch's own clipping."""

CLASSES = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD, "lamb": Lamb}


def fused(name, device):
    """Whether the device has a fused `name`; a missing one is a named fallback. Asked before the header is written."""
    if not device.can("fused_optimizer"):
        return False
    try:
        CLASSES[name]([torch.nn.Parameter(torch.zeros(1, device=device.torch_device))], lr=0.1, fused=True)
        return True
    except (RuntimeError, TypeError, NotImplementedError) as problem:
        device.fall_back("fused_optimizer", f"{problem}".splitlines()[0])
        return False


def check_name(params):
    """Raises RunProblem for an optimizer that the driver does not have."""
    if params["optimizer"] not in CLASSES:
        known = ", ".join(CLASSES)
        raise RunProblem(f"optimizer = {params['optimizer']!r} is not one of {known}: change params.optimizer")


def decayed_groups(model, weight_decay):
    """The default groups: matrices decay, biases and norms do not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(params, groups, use_fused):
    """The standard optimizer of `params`: the default callable behind the slot `optimizer`.

    Raises RunProblem for a parameter that it does not take, a negative learning rate, say.
    """
    name = params["optimizer"]
    options = {"lr": params["lr"], "weight_decay": params["weight_decay"]}
    if name == "sgd":
        options["momentum"] = params["momentum"]
    else:
        options.update(betas=(params["adam_beta1"], params["adam_beta2"]), eps=params["adam_eps"])
    if use_fused:
        options["fused"] = True
    try:
        return CLASSES[name](groups, **options)
    except ValueError as problem:
        raise RunProblem(f"optimizer = {name!r} does not take its parameters ({problem}): change them") from problem


def clip(parameters, limit):
    """Scale all gradients together so that their norm is at most `limit`; a divided model's over all its pieces."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not any(map(pieces.is_piece, gradients)):
        torch.nn.utils.clip_grad_norm_(parameters, limit)
        return
    total = 0
    for alike in pieces.by_division(gradients):
        squares = torch.nn.utils.get_total_norm([pieces.local(gradient) for gradient in alike]).square()
        for axis in pieces.split_axes(alike[0]):
            torch.distributed.all_reduce(squares, group=alike[0].device_mesh.get_group(axis))
        total = total + squares
    factor = (limit / (total.sqrt() + CLIP_EPS)).clamp(max=1.0)
    for gradient in gradients:
        pieces.local(gradient).mul_(factor)


class Stepper:
    """One optimizer step: learning rate, unscale, clip, step; counts updates and skips, without a synchronise."""

    def __init__(self, optimizer, schedule, scaler, clip, device):
        self.optimizer = optimizer
        self.schedule = schedule
        self.scaler = scaler
        self.clip = clip
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.lr = self.rates[0]
        self._asked = 0
        # Counted where it happens, in the optimizer: whoever leaves a step out, or makes one more, does not count it.
        self.updates = Updates(optimizer, torch.zeros((), device=device.torch_device) if scaler else None)

    def step(self, number):
        """Apply the gradients as step `number`, counted from 0."""
        factor = self.schedule(number)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * factor
        self.lr = self.rates[0] * factor
        if self.scaler and self.clip:
            self.scaler.unscale_(self.optimizer)
        if self.clip:
            clip(self.parameters, self.clip)
        if self.scaler:
            self._asked += 1
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def take_counts(self):
        """`skipped` and `updates` since the last call. Waits for the device: only at the end of a window."""
        made, found = self.updates.take(), self.updates.take_found()
        skipped = self._asked - made + found if self.scaler else 0
        self._asked = 0
        return {"skipped": skipped, "updates": made - found}

    def state(self):
        """For a checkpoint."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
        }

    def load(self, state):
        """Restore what `state` gave; the base learning rates are the plan's."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
