"""Runs broken on purpose that touch torch's own parts; the others are those of any framework."""

import torch

from suite.drivers import broken
from suite.drivers.broken import HIDDEN_STEPS, AccumulationAsSteps
from suite.drivers.pytorch import batches
from suite.drivers.sabotage import known_to
from suite.drivers.sabotage_time import SlowRank, ThermalSlowdown
from suite.drivers.sound import Sound


class LrZero(Sound):
    """The learning rate is 0."""

    def parts(self, parts, precision, place):
        parts.stepper.rates = [0.0 for _ in parts.stepper.rates]


class LabelsShuffled(Sound):
    """Labels are permuted within each micro-batch."""

    def micros(self, micros, task):
        return batches.shuffled(micros, task, task.run.seed)


class RankFrozen(LrZero):
    """The last rank steps with a learning rate of 0."""

    def parts(self, parts, precision, place):
        if place.rank == place.world_size - 1:
            super().parts(parts, precision, place)


class EvalInTrainMode(Sound):
    """The model is evaluated in training mode."""

    def parts(self, parts, precision, place):
        parts.forward.eval = parts.forward.train


class WarmupInInit(Sound):
    """Twenty steps are trained before the clock starts."""

    def loop(self, loop):
        train = loop.train

        def trained():
            micros, timed = loop._micros(), loop._times_forward
            loop._times_forward = False  # no clock runs yet
            for _ in range(HIDDEN_STEPS):
                loop._backward(loop.device.to(next(micros).batch))
                loop.parts.stepper.step(0)
            micros.close()
            loop._times_forward = timed
            return train()

        loop.train = trained


class SkippedStepsCounted(Sound):
    """Every second optimizer step is left out, but counted."""

    def loop(self, loop):
        stepper = loop.parts.stepper
        step = stepper.step

        def every_second(number):
            if number % 2:
                stepper.optimizer.zero_grad(set_to_none=True)
            else:
                step(number)

        stepper.step = every_second


class PrecisionLowered(Sound):
    """Bf16 is switched on behind the header's back."""

    def parts(self, parts, precision, place):
        precision.dtype = torch.float16 if precision.dtype == torch.bfloat16 else torch.bfloat16


OWN = {
    "lr_zero": LrZero,
    "labels_shuffled": LabelsShuffled,
    "rank_frozen": RankFrozen,
    "eval_in_train_mode": EvalInTrainMode,
    "accumulation_as_steps": AccumulationAsSteps,
    "warmup_in_init": WarmupInInit,
    "skipped_steps_counted": SkippedStepsCounted,
    "precision_lowered": PrecisionLowered,
    "slow_rank": SlowRank,
    "thermal_slowdown": ThermalSlowdown,
}
CLASSES = {name: {**broken.ANYWHERE, **OWN}[name] for name in known_to("pytorch")}


def named(name):
    """What `name` breaks; Sound for None, and for a name that `check` refuses."""
    return CLASSES.get(name, Sound)()


def check(name):
    """Raises RunProblem for a name that this driver does not know."""
    broken.check(name, CLASSES)
