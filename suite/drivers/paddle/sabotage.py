"""Runs broken on purpose that touch Paddle's own parts; the others are those of any framework."""

import dataclasses

from suite.drivers import broken
from suite.drivers.broken import HIDDEN_STEPS, AccumulationAsSteps
from suite.drivers.paddle import batches
from suite.drivers.paddle.feed import Feed
from suite.drivers.sabotage import known_to
from suite.drivers.sabotage_time import SlowRank, ThermalSlowdown
from suite.drivers.sound import Sound


class LrZero(Sound):
    """The learning rate is 0."""

    def parts(self, parts, precision, place):
        parts.stepper.base = 0.0


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
        parts.model.eval = parts.model.train


class WarmupInInit(Sound):
    """Twenty steps are trained before the clock starts."""

    def loop(self, loop):
        train = loop.train

        def trained():
            timed, loop._times_forward = loop._times_forward, False  # no clock runs yet
            progress = dataclasses.replace(loop.progress)
            feed = Feed(loop.run, loop.task, loop.device, progress, lambda event, **keys: None, loop.broken)
            for _ in range(HIDDEN_STEPS):
                loop._backward(feed.next())
                loop.parts.stepper.step(0)
            feed.close()
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
                stepper.optimizer.clear_grad(set_to_zero=False)
            else:
                step(number)

        stepper.step = every_second


OWN = {
    "lr_zero": LrZero,
    "labels_shuffled": LabelsShuffled,
    "rank_frozen": RankFrozen,
    "eval_in_train_mode": EvalInTrainMode,
    "accumulation_as_steps": AccumulationAsSteps,
    "warmup_in_init": WarmupInInit,
    "skipped_steps_counted": SkippedStepsCounted,
    "slow_rank": SlowRank,
    "thermal_slowdown": ThermalSlowdown,
}
CLASSES = {name: {**broken.ANYWHERE, **OWN}[name] for name in known_to("paddle")}


def named(name):
    """What `name` breaks; Sound for None, and for a name that `check` refuses."""
    return CLASSES.get(name, Sound)()


def check(name):
    """Raises RunProblem for a name that this driver does not know."""
    broken.check(name, CLASSES)
