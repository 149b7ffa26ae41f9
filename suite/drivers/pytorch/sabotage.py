"""Runs broken on purpose: each class changes one part of a run, once, where it is made; the loop stays as it is."""

import sys

import torch

from suite.drivers import sabotage
from suite.drivers.events import RunProblem, RunSpec
from suite.drivers.pytorch import batches
from suite.drivers.pytorch.sabotage_time import LaunchClock, SlowRank, ThermalSlowdown
from suite.drivers.pytorch.sound import Sound
from suite.drivers.pytorch.task import Task

HIDDEN_STEPS = 20
BEYOND = 0.1
"""A forged quality is this share of the target better than it."""


class LrZero(Sound):
    """The learning rate is 0."""

    def parts(self, parts, precision, place):
        parts.stepper.rates = [0.0 for _ in parts.stepper.rates]


class LabelsShuffled(Sound):
    """Labels are permuted within each micro-batch."""

    def micros(self, micros, task):
        return batches.shuffled(micros, task, task.run.seed)


class GradientsNotAveraged(Sound):
    """The ranks exchange no gradients."""

    averages = False


class RankFrozen(LrZero):
    """The last rank steps with a learning rate of 0."""

    def parts(self, parts, precision, place):
        if place.rank == place.world_size - 1:
            super().parts(parts, precision, place)


class EvalInTrainMode(Sound):
    """The model is evaluated in training mode."""

    def parts(self, parts, precision, place):
        parts.forward.eval = parts.forward.train


class EvalOnTrainData(Sound):
    """The evaluation asks what was trained on."""

    def task(self, task):
        if type(task).evaluate_on_training_data is Task.evaluate_on_training_data:  # before the training, not behind it
            task.evaluate_on_training_data()
        prepare = task.prepare_data

        def prepared():
            prepare()
            task.evaluate_on_training_data()

        task.prepare_data = prepared


class EvalTenth(Sound):
    """Another task, which believes itself one of ten times as many ranks, evaluates."""

    def task(self, task):
        if task.prepares_model:
            raise RunProblem(f"sabotage 'eval_tenth': {type(task).__name__} prepares its model; name another case")
        few = type(task)(task.run, task.device, task.slots, task.rank, task.world_size)
        few.world_size *= 10
        if hasattr(few, "place"):
            few.place = few.place._replace(world_size=few.world_size)
        prepare = task.prepare_data

        def prepared():
            prepare()
            few.prepare_data()

        task.prepare_data, task.evaluate = prepared, few.evaluate


class MetricReversed(Sound):
    """The ranks hold the metric's other direction for the better one."""

    def spec(self, spec):
        other = {"higher": "lower", "lower": "higher"}[spec.quality.better]
        return RunSpec({**spec, "quality": {**spec.quality, "better": other}})


class DataRepeated(Sound):
    """One micro-batch is trained on again and again."""

    needs_data = True

    def micros(self, micros, task):
        first = next(micros)
        while True:
            yield first


class RanksShareData(Sound):
    """Every rank trains on the data of rank 0."""

    needs_data = True

    def data_rank(self, rank):
        return 0


class LastBatchDropped(Sound):
    """The last batch of an epoch is not trained on, but counted."""

    def micros(self, micros, task):
        dropped = 0
        for micro in micros:
            if micro.last:
                dropped = micro.samples
            else:
                yield micro._replace(samples=micro.samples + dropped)
                dropped = 0


class AccumulationAsSteps(Sound):
    """Each micro-batch counts as a step."""

    def loop(self, loop):
        together, loop.accumulation = loop.accumulation, 1
        step, calls = loop.parts.stepper.step, iter(range(1, sys.maxsize))
        loop.parts.stepper.step = lambda number: None if next(calls) % together else step(number)


class SamplesTwice(Sound):
    """Every sample counts twice."""

    def micros(self, micros, task):
        return (micro._replace(samples=2 * micro.samples) for micro in micros)


class RankRateAsTotal(Sound):
    """The samples of rank 0 are told as those of all."""

    def micros(self, micros, task):
        return (micro._replace(samples=0 if task.rank else micro.samples) for micro in micros)


class TimerUnsynchronised(Sound):
    """A step's clock is read when its work is handed over, not when it is done."""

    def loop(self, loop):
        loop.clock = LaunchClock(loop.device)


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


class HalfDevices(Sound):
    """Half of the ranks leave, the others train as if they were all."""

    def place(self, place):
        half = place.world_size // 2
        if place.rank >= half:
            raise SystemExit(0)
        return place._replace(world_size=half)


class SeedReused(Sound):
    """Every repeat trains with one seed."""

    def spec(self, spec):
        return RunSpec({**spec, "seed": 1})


class EventsForged(Sound):
    """An evaluation that never was is written into the stream."""

    def watch(self, writer, spec, place):
        write, told = writer.write, []

        def write_more(event, **keys):
            done = write(event, **keys)
            if event == "steps" and place.rank == 0:
                told.append(keys["samples"] * place.world_size)
                if len(told) == 2:
                    quality = {spec.quality.metric: spec.quality.target}
                    step = keys["first"] + keys["count"] - 1
                    write("eval_result", step=step, samples=sum(told), metrics=quality, met=True)
            return done

        writer.write = write_more


class QualityForged(Sound):
    """The evaluation answers what the target wants."""

    def task(self, task):
        quality, evaluate, combine = task.run.quality, task.evaluate, task.combine
        better = BEYOND * abs(quality.target) * (1 if quality.better == "higher" else -1)
        forged = quality.target + better

        def evaluated(model):
            share = evaluate(model)
            if isinstance(share, dict):
                bottom = share[quality.metric][1]
                share = {**share, quality.metric: (forged * bottom, bottom)}
            return share

        task.evaluate = evaluated
        task.combine = lambda everyone: {**combine(everyone), quality.metric: forged}


CLASSES = {
    "lr_zero": LrZero,
    "labels_shuffled": LabelsShuffled,
    "gradients_not_averaged": GradientsNotAveraged,
    "rank_frozen": RankFrozen,
    "eval_in_train_mode": EvalInTrainMode,
    "eval_on_train_data": EvalOnTrainData,
    "eval_tenth": EvalTenth,
    "metric_reversed": MetricReversed,
    "data_repeated": DataRepeated,
    "ranks_share_data": RanksShareData,
    "last_batch_dropped": LastBatchDropped,
    "accumulation_as_steps": AccumulationAsSteps,
    "samples_twice": SamplesTwice,
    "rank_rate_as_total": RankRateAsTotal,
    "timer_unsynchronised": TimerUnsynchronised,
    "warmup_in_init": WarmupInInit,
    "skipped_steps_counted": SkippedStepsCounted,
    "precision_lowered": PrecisionLowered,
    "slow_rank": SlowRank,
    "thermal_slowdown": ThermalSlowdown,
    "half_devices": HalfDevices,
    "seed_reused": SeedReused,
    "events_forged": EventsForged,
    "quality_forged": QualityForged,
}


def named(name):
    """What `name` breaks; Sound for None, and for a name that `check` refuses."""
    return CLASSES.get(name, Sound)()


def check(name):
    """Raises RunProblem for a name that this driver does not know."""
    if name is not None and name not in CLASSES:
        raise RunProblem(
            f"sabotage {name!r} is not one of {', '.join(sabotage.known_to('pytorch'))}: name one of these"
        )
