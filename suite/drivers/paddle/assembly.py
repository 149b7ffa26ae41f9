"""The training's parts put together: model, wrapped model, optimizer. Before the clock starts."""

from dataclasses import dataclass
from typing import Any

from suite.drivers.events import RunProblem
from suite.drivers.paddle.optimizer import Stepper, check_name, decayed_groups
from suite.drivers.paddle.seed import rank_seed, seed_everything
from suite.drivers.paddle.weights import weights
from suite.drivers.schedule import Schedule

NOT_HERE = {"compile": False, "sharding": "none", "tensor_parallel": 1, "loader": "thread"}
"""Parameters of the PyTorch driver that this one reads in one way only."""


@dataclass
class Assembly:
    """What the loop trains with."""

    model: Any
    """The case's own layer: evaluation, checkpoints and checksums see this one."""
    trained: Any
    """The same, averaging its gradients over the ranks: the loss calls this one."""
    stepper: Stepper

    def counts(self):
        """(parameters, trainable parameters)."""
        every = [(parameter.size, not parameter.stop_gradient) for parameter in weights(self.model).values()]
        return sum(count for count, _ in every), sum(count for count, trains in every if trains)


def check_params(params):
    """Raises RunProblem for what this driver does not do, rather than to do something else in its place."""
    check_name(params)
    for name, only in NOT_HERE.items():
        if params.get(name, only) != only:
            raise RunProblem(
                f"{name} = {params[name]!r}: the paddle driver has {only!r} alone; set params.{name} to it"
            )


def assemble(run, task, group, averaged=True):
    """Build everything under the run's seed, then give each rank a random state of its own."""
    params = run.params
    seed_everything(run.seed)
    model = task.build()
    model.train()
    trained = group.wrap(model, averaged=averaged)
    groups = task.parameter_groups(model) or decayed_groups(model, params["weight_decay"])
    schedule = Schedule(params, global_batch(params, group.world_size))
    stepper = Stepper(task.slots["optimizer"], params, groups, schedule)
    seed_everything(rank_seed(run.seed, group.rank))
    return Assembly(model, trained, stepper)


def global_batch(params, world_size):
    """Samples of one optimizer step over all ranks."""
    return params["train_batch_size"] * params["gradient_accumulation_steps"] * world_size
