"""The training's parts put together: model, wrapped model, optimizer. Before the clock starts."""

from dataclasses import dataclass
from typing import Any

import torch

from suite.drivers.pytorch import pieces
from suite.drivers.pytorch.compiling import compile_options
from suite.drivers.pytorch.optimizer import Stepper, decayed_groups
from suite.drivers.pytorch.schedule import Schedule
from suite.drivers.pytorch.seed import rank_seed, seed_everything
from suite.drivers.pytorch.sharding import divide


@dataclass
class Assembly:
    """What the loop trains with."""

    model: Any
    """The case's own module: checkpoints and checksums see this one."""
    forward: Any
    """The same, compiled where asked for: evaluation calls this one."""
    trained: Any
    """The same, averaging its gradients over the ranks: the loss calls this one."""
    stepper: Stepper

    def counts(self):
        """(parameters, trainable parameters)."""
        every = [(parameter.numel(), parameter.requires_grad) for parameter in self.model.parameters()]
        return sum(count for count, _ in every), sum(count for count, trains in every if trains)


def assemble(run, task, device, precision, group, use_fused, layout, averaged=True):
    """Build everything under the run's seed, then give each rank with data of its own random state of its own."""
    params, options = run.params, compile_options(run.params)
    seed_everything(run.seed, device)
    model = task.build()
    model.train()
    if layout.divides:
        model = forward = trained = divide(model, task, layout, device, precision, averaged)
    else:
        model = model.to(device.torch_device)
        compiles = params["compile"] and device.can("compile")
        forward = torch.compile(model, **options) if compiles else model
        trained = group.wrap(forward, averaged=averaged)
    groups = task.parameter_groups(model) or decayed_groups(model, params["weight_decay"])
    stepper = Stepper(
        task.slots["optimizer"](params, _divided_alike(groups), use_fused),
        Schedule(params, global_batch(params, layout.data_size)),
        precision.scaler,
        params["clip_grad_norm"],
        device,
    )
    seed_everything(rank_seed(run.seed, layout.data_rank), device)
    return Assembly(model, forward, trained, stepper)


def _divided_alike(groups):
    """The optimizer's groups, each cut so that its parameters are divided in one way."""
    return [
        {**group, "params": parameters} for group in groups for parameters in pieces.by_division(list(group["params"]))
    ]


def global_batch(params, data_size):
    """Samples of one optimizer step over all ranks that have data of their own."""
    return params["train_batch_size"] * params["gradient_accumulation_steps"] * data_size
