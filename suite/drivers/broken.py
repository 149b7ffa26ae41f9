"""Runs broken on purpose, in ways that know no framework: each class changes one part of a run, once, where it is made.

A driver adds those that touch its own model, optimizer and step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from suite.drivers.events import RunProblem, RunSpec
from suite.drivers.sabotage_time import TimerUnsynchronised
from suite.drivers.sound import Sound

BEYOND = 0.1
"""A forged quality is this share of the target better than it."""
HIDDEN_STEPS = 20
"""Of `warmup_in_init`."""
DRIVERS = "suite.drivers."
"""Begins the names of the modules that define what every task has."""


class GradientsNotAveraged(Sound):
    """The ranks exchange no gradients."""

    averages = False


class AccumulationAsSteps(Sound):
    """Each micro-batch counts as a step, where a loop's stepper is called for each step."""

    def loop(self, loop: Any) -> None:
        together, loop.accumulation = loop.accumulation, 1
        step, calls = loop.parts.stepper.step, iter(range(1, sys.maxsize))
        loop.parts.stepper.step = lambda number: None if next(calls) % together else step(number)


class EvalOnTrainData(Sound):
    """The evaluation asks what was trained on."""

    def task(self, task: Any) -> None:
        own = type(task).evaluate_on_training_data
        if own.__module__.startswith(DRIVERS):  # the case has none: said before the training, not behind it
            task.evaluate_on_training_data()
        prepare = task.prepare_data

        def prepared() -> None:
            prepare()
            task.evaluate_on_training_data()

        task.prepare_data = prepared


class EvalTenth(Sound):
    """Another task, which believes itself one of ten times as many ranks, evaluates."""

    def task(self, task: Any) -> None:
        few = self.another(task)
        # Not rank 0, which alone prepares weights where a task does: this one has no model.
        few.rank, few.world_size = task.rank + task.world_size, task.world_size * 10
        if hasattr(few, "place"):
            few.place = few.place._replace(rank=few.rank, world_size=few.world_size)
        prepare = task.prepare_data

        def prepared() -> None:
            prepare()
            few.prepare_data()

        task.prepare_data, task.evaluate = prepared, few.evaluate

    @staticmethod
    def another(task: Any) -> Any:
        """A second task like this one, whose data is not open."""
        return type(task)(task.run, task.device, task.slots, task.rank, task.world_size)


class MetricReversed(Sound):
    """The ranks hold the metric's other direction for the better one."""

    def spec(self, spec: Any) -> Any:
        other = {"higher": "lower", "lower": "higher"}[spec.quality.better]
        return RunSpec({**spec, "quality": {**spec.quality, "better": other}})


class DataRepeated(Sound):
    """One micro-batch is trained on again and again."""

    needs_data = True

    def micros(self, micros: Iterator[Any], task: Any) -> Iterator[Any]:
        first = next(micros)
        while True:
            yield first


class RanksShareData(Sound):
    """Every rank trains on the data of rank 0."""

    needs_data = True

    def data_rank(self, rank: int) -> int:
        return 0


class LastBatchDropped(Sound):
    """The last batch of an epoch is not trained on, but counted."""

    def micros(self, micros: Iterator[Any], task: Any) -> Iterator[Any]:
        dropped = 0
        for micro in micros:
            if micro.last:
                dropped = micro.samples
            else:
                yield micro._replace(samples=micro.samples + dropped)
                dropped = 0


class SamplesTwice(Sound):
    """Every sample counts twice."""

    def micros(self, micros: Iterator[Any], task: Any) -> Iterator[Any]:
        return (micro._replace(samples=2 * micro.samples) for micro in micros)


class RankRateAsTotal(Sound):
    """The samples of rank 0 are told as those of all."""

    def micros(self, micros: Iterator[Any], task: Any) -> Iterator[Any]:
        return (micro._replace(samples=0 if task.rank else micro.samples) for micro in micros)


class HalfDevices(Sound):
    """Half of the ranks leave, the others train as if they were all."""

    def place(self, place: Any) -> Any:
        half = place.world_size // 2
        if place.rank >= half:
            raise SystemExit(0)
        return place._replace(world_size=half)


class SeedReused(Sound):
    """Every repeat trains with one seed."""

    def spec(self, spec: Any) -> Any:
        return RunSpec({**spec, "seed": 1})


class EventsForged(Sound):
    """An evaluation that never was is written into the stream."""

    def watch(self, writer: Any, spec: Any, place: Any) -> None:
        write, told = writer.write, list[int]()

        def write_more(event: str, **keys: Any) -> bool:
            done: bool = write(event, **keys)
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

    def task(self, task: Any) -> None:
        quality, evaluate = task.run.quality, task.evaluate
        better = BEYOND * abs(quality.target) * (1 if quality.better == "higher" else -1)
        forged = quality.target + better

        def evaluated(model: Any) -> Any:
            share = evaluate(model)
            if isinstance(share, dict):
                bottom = share[quality.metric][1]
                share = {**share, quality.metric: (forged * bottom, bottom)}
            return share

        task.evaluate = evaluated
        if hasattr(task, "combine"):
            combine = task.combine
            task.combine = lambda everyone: {**combine(everyone), quality.metric: forged}


ANYWHERE: Mapping[str, type[Sound]] = {
    "gradients_not_averaged": GradientsNotAveraged,
    "eval_on_train_data": EvalOnTrainData,
    "eval_tenth": EvalTenth,
    "metric_reversed": MetricReversed,
    "data_repeated": DataRepeated,
    "ranks_share_data": RanksShareData,
    "last_batch_dropped": LastBatchDropped,
    "samples_twice": SamplesTwice,
    "rank_rate_as_total": RankRateAsTotal,
    "timer_unsynchronised": TimerUnsynchronised,
    "half_devices": HalfDevices,
    "seed_reused": SeedReused,
    "events_forged": EventsForged,
    "quality_forged": QualityForged,
}


def check(name: str | None, known: Mapping[str, type[Sound]]) -> None:
    """Raises RunProblem for a name that a driver does not know."""
    if name is not None and name not in known:
        raise RunProblem(f"sabotage {name!r} is not one of {', '.join(known)}: name one of these")


def refuse_random(broken: Sound, name: str | None) -> None:
    """Raises RunProblem for a sabotage of the data where the data is random: nobody compares that."""
    if broken.needs_data:
        raise RunProblem(f"sabotage {name!r} does not show on random batches: give the site its data")
