"""Runs broken on purpose that touch TensorFlow's own parts; the others are those of any framework."""

import copy
import inspect

import tensorflow as tf

from suite.drivers import broken
from suite.drivers.broken import HIDDEN_STEPS
from suite.drivers.events import RunProblem
from suite.drivers.sabotage import known_to
from suite.drivers.sabotage_time import delayed, warming
from suite.drivers.sound import Sound
from suite.drivers.tensorflow2 import stream


class LrZero(Sound):
    """The learning rate is 0."""

    def loop(self, loop):
        loop.schedule = lambda step: 0.0


class LabelsShuffled(Sound):
    """Labels are permuted within each micro-batch."""

    def micros(self, micros, task):
        return stream.shuffled(micros, task, task.run.seed)


class RankFrozen(LrZero):
    """The last rank steps with a learning rate of 0."""

    def loop(self, loop):
        if loop.control.rank == loop.control.world_size - 1:
            super().loop(loop)


class EvalInTrainMode(Sound):
    """The model is evaluated in training mode."""

    def task(self, task):
        evaluate, seen = task.evaluate, {}
        # One stand-in for all evaluations: a case may have traced the first.
        task.evaluate = lambda model: evaluate(seen.setdefault(id(model), InTraining(model)))

    def parts(self, parts, precision, place):
        InTraining(parts.model)  # what cannot be broken so says it before the training


class InTraining:
    """A model that every call takes for one in training."""

    def __init__(self, model):
        self._model = model
        self._words = inspect.signature(model.__call__) if callable(model) else None
        if self._words is None or "training" not in self._words.parameters:
            raise RunProblem(
                f"sabotage 'eval_in_train_mode': a {type(model).__name__} is not called with `training`: break the run"
                " in another way"
            )

    def __call__(self, *words, **keys):
        call = self._words.bind_partial(*words, **keys)
        call.arguments["training"] = True
        if "chance" in self._words.parameters:
            call.arguments["chance"] = tf.constant([0, 0])
        return self._model(*call.args, **call.kwargs)

    def __getattr__(self, name):
        return getattr(self._model, name)


class EvalTenth(broken.EvalTenth):
    """Another task, which believes itself one of ten times as many ranks, evaluates."""

    @staticmethod
    def another(task):
        return type(task)(task.run, task.dtype, task.slots, task.rank, task.world_size)


class AccumulationAsSteps(Sound):
    """Each micro-batch counts as a step."""

    def loop(self, loop):
        together, loop.accumulation = loop.accumulation, 1
        step, idle, held = loop.trainer.step, without_update(loop.trainer), []

        def one(micros, rate, chance):
            held.extend(micros)
            if len(held) < together:
                return idle.step(micros, rate, chance)
            whole = held[:]
            held.clear()
            return step(whole, rate, chance)

        loop.trainer.step = one


class WarmupInInit(Sound):
    """Twenty steps are trained before the clock starts."""

    def loop(self, loop):
        train = loop.train

        def trained():
            micros, rate = loop._micros(), loop.params["lr"] * loop.schedule(0)
            for _ in range(HIDDEN_STEPS):
                loop.trainer.step([next(micros).batch], rate, (loop._chance, 0))
            micros.close()
            return train()

        loop.train = trained


class SkippedStepsCounted(Sound):
    """Every second optimizer step is left out, but counted."""

    def loop(self, loop):
        step, idle = loop.trainer.step, without_update(loop.trainer)

        def every_second(micros, rate, chance):
            return (idle.step if chance[1] % 2 else step)(micros, rate, chance)

        loop.trainer.step = every_second


class PrecisionLowered(Sound):
    """Bf16 is switched on behind the header's back."""

    def task(self, task):
        task.dtype = tf.float32 if task.dtype == tf.bfloat16 else tf.bfloat16


class ThermalSlowdown(Sound):
    """Steps grow slower and slower, in the end four times as slow."""

    def loop(self, loop):
        loop.trainer.step = delayed(loop.trainer.step, loop.device, warming(loop.params, 1))


def without_update(trainer):
    """A trainer of the same model, whose step ends before the update."""
    idle = copy.copy(trainer)
    idle.optimizer = NoUpdate()
    idle.compile()
    return idle


class NoUpdate:
    """In an optimizer's place."""

    def apply(self, gradients, rate):
        """Leave it out."""
        return None  # a docstring alone is no body that TensorFlow can trace


OWN = {
    "lr_zero": LrZero,
    "labels_shuffled": LabelsShuffled,
    "rank_frozen": RankFrozen,
    "eval_in_train_mode": EvalInTrainMode,
    "eval_tenth": EvalTenth,
    "accumulation_as_steps": AccumulationAsSteps,
    "warmup_in_init": WarmupInInit,
    "skipped_steps_counted": SkippedStepsCounted,
    "precision_lowered": PrecisionLowered,
    "thermal_slowdown": ThermalSlowdown,
}
CLASSES = {name: {**broken.ANYWHERE, **OWN}[name] for name in known_to("tensorflow2")}


def named(name):
    """What `name` breaks; Sound for None, and for a name that `check` refuses."""
    return CLASSES.get(name, Sound)()


def check(name):
    """Raises RunProblem for a name that this driver does not know."""
    broken.check(name, CLASSES)
