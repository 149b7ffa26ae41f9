"""`run(TaskClass)`: the one entry of every case's train.py."""

import contextlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.drivers.events import EventWriter, RunProblem, RunSpec, find_place
from suite.drivers.progress import Progress
from suite.drivers.pulse import Pulse, write_stop
from suite.drivers.slots import Runtime, fill_slots
from suite.drivers.tensorflow2 import checkpoint, checksum, cluster, optimizer, sabotage, strategy
from suite.drivers.tensorflow2.control import Control
from suite.drivers.tensorflow2.device import Device
from suite.drivers.tensorflow2.evaluation import evaluate, meets
from suite.drivers.tensorflow2.expectation import check_expectations
from suite.drivers.tensorflow2.header import write_header
from suite.drivers.tensorflow2.loop import Loop
from suite.drivers.tensorflow2.options import check_options
from suite.drivers.tensorflow2.precision import Precision
from suite.drivers.tensorflow2.problem import EnvironmentProblem
from suite.drivers.tensorflow2.trainer import Trainer

MODES = ("converge", "throughput", "evaluate")

EXIT_EXCEPTION = 1
EXIT_ENVIRONMENT = 3
DETAIL = 2000
"""Characters of an exception that run_stop carries; the log has it all."""


def run(task_class):
    """Train as run.json says, and leave the process: 0 after an orderly end, 1 or 3 after any other."""
    spec = RunSpec.load()
    broken = sabotage.named(spec.sabotage)
    spec, place = broken.spec(spec), broken.place(find_place())
    writer = EventWriter(str(Path(spec.run_dir, "events", f"rank{place.rank}.jsonl")))
    broken.watch(writer, spec, place)
    rank = Rank(task_class, spec, place, writer, broken)
    try:
        rank.train()
    except EnvironmentProblem as problem:
        rank.abort("environment", str(problem), EXIT_ENVIRONMENT)
    except RunProblem as problem:
        rank.abort("config", str(problem), EXIT_EXCEPTION)
    except BaseException as problem:  # also SystemExit of a case's code: only run_stop ends a run
        traceback.print_exc()
        rank.abort("exception", f"{type(problem).__name__}: {problem}", EXIT_EXCEPTION)
    _leave(0)  # TensorFlow's server has no end: a worker that waits for it at exit may wait for ever


def _leave(code):
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@dataclass
class Chip:
    """What is decided before anything is built."""

    device: Any
    strategy: Any
    precision: Any
    facts: dict
    """The header's `precision`."""
    slots: Any
    runtime: Any


class Rank:
    """This process's part of the run, from the header to run_stop."""

    def __init__(self, task_class, spec, place, writer, broken):
        self.task_class, self.spec, self.place, self.writer, self.broken = task_class, spec, place, writer, broken
        self.progress = Progress()
        self.control = None
        self.pulse = None

    def train(self):
        """All of it."""
        chip = self._open_chip()
        self.pulse = Pulse(self.writer, self.spec.heartbeat_s, lambda: (self.progress.step, self.progress.samples))
        chip.device.on_fallback = self._warn_fallback
        self._tell("init_start")
        check_expectations(self.spec, self.place, chip.device, chip.facts, self.control)
        world = self.place.world_size
        if self.spec.mode == "evaluate":
            task = self._make_task(chip, self.place.rank)
            self._evaluate(task, Trainer(self.spec, task, chip.strategy, world))
            return
        task = self._make_task(chip, self.broken.data_rank(self.place.rank))
        self.broken.task(task)
        trainer = Trainer(self.spec, task, chip.strategy, world, self.broken.averages)
        self.broken.parts(trainer, chip.precision, self.place)
        if self.spec.resume:
            path = Path(self.spec.run_dir, self.spec.resume)
            self.progress = checkpoint.load(path, self.spec, trainer, self.control)
        self._tell_built(trainer)
        loop = Loop(
            run=self.spec,
            task=task,
            trainer=trainer,
            device=chip.device,
            control=self.control,
            writer=self.writer,
            pulse=self.pulse,
            runtime=chip.runtime,
            progress=self.progress,
            broken=self.broken,
        )
        self.broken.loop(loop)
        reason = loop.train()
        # Read again: what the header says was in force before the first step.
        self._finish(reason, trainer, chip.device, chip.precision.facts(task.dtype))

    def _make_task(self, chip, rank):
        return self.task_class(self.spec, chip.precision.dtype, chip.slots, rank, self.place.world_size)

    def _open_chip(self):
        """The device and all that is decided on it; the header is the first line also where this fails.

        The cluster comes first: TensorFlow takes collectives only before it has computed anything, and the precision
        is proved by a product.
        """
        device = None
        try:
            self._check_plan()
            strategy.set_environment(self.spec.params)
            device = Device.open(self.spec.device, self.place.local_rank, self.spec.params["threads"])
            runtime = self._open_runtime(device)
            standard = {"optimizer": optimizer.make_optimizer, **self.task_class.default_slots()}
            slots = fill_slots(standard, self.spec.extern_dir, self.spec.slots)
            made = self._distribute(device)
            precision = Precision(self.spec.params["precision"], self.spec.capabilities)
            chip = Chip(device, made, precision, precision.facts(), slots, runtime)
        except BaseException:
            write_header(self.writer, self.spec, self.place, device)
            raise
        replaced = {**slots.replaced(), **runtime.replaced()}
        write_header(self.writer, self.spec, self.place, device, chip.facts, replaced)
        return chip

    def _open_runtime(self, device):
        """The vendor's hooks, the first of them called. The step is compiled as one: nothing can be called inside."""
        runtime = Runtime(self.spec.runtime_dir)
        if "runtime:after_backward" in runtime.replaced():
            raise RunProblem(
                f"{self.spec.runtime_dir}/runtime.py defines after_backward, but a step is compiled as one: "
                "use after_step"
            )
        runtime.setup(device, self.spec)
        return runtime

    def _check_plan(self):
        optimizer.check_name(self.spec.params)
        sabotage.check(self.spec.sabotage)
        if self.spec.mode not in MODES:
            raise RunProblem(f"mode {self.spec.mode!r} is not one of {', '.join(MODES)}: plan the run again")

    def _distribute(self, device):
        """The ranks together, and the strategy over them."""
        world = self.place.world_size
        if self.spec.mode != "evaluate":
            check_options(self.spec.params, world, device.is_host)
        self.control = Control(self.place)
        if self.spec.mode == "evaluate":
            return strategy.unchanged()
        cluster.configure_cluster(cluster.meet(self.control), self.place.rank)
        return strategy.make_strategy(self.spec.params, device)

    def _evaluate(self, task, trainer):
        """A saved model's quality instead of a training."""
        self.pulse.phase = "eval"
        if not self.spec.resume:
            raise RunProblem("mode evaluate needs a checkpoint: name the file in run.json as resume")
        step, samples = checkpoint.load_model(self.spec.resume, self.spec, trainer)
        self.progress.step, self.progress.samples = step, samples
        self._tell_built(trainer)
        task.prepare_data()
        self._tell("eval_start", step=step)
        found = evaluate(task, trainer.model, self.control)
        self._tell("eval_stop", step=step)
        met = meets(found.metrics, self.spec.quality)
        self._tell("eval_result", step=step, samples=samples, **found.told(), met=met)
        self._end("success", "evaluated", "")

    def _tell(self, event, **keys):
        if self.place.rank == 0:
            self.writer.write(event, **keys)

    def _tell_built(self, trainer):
        parameters, trainable = trainer.counts()
        self._tell("init_stop", parameters=parameters, trainable=trainable)

    def _warn_fallback(self, entry):
        self.writer.write("warning", text=f"fallback: {entry['what']}: {entry['why']}")

    def _finish(self, reason, trainer, device, precision):
        """What follows the last step: memory, the ranks' comparison, the last line."""
        self.pulse.phase = "checksum"
        self._tell("memory", **device.memory())
        found = checksum.compare(trainer.variables, self.control)
        self.writer.write("checksum", step=self.progress.step, precision=precision, **found)
        status = "aborted" if reason == "nonfinite_loss" else "success"
        detail = "a loss is not finite: lower lr or change precision" if status == "aborted" else ""
        self._end(status, reason, detail)

    def _end(self, status, reason, detail):
        self._stop(status, reason, detail)
        self.pulse.stop()
        self.control.farewell()
        self.control.close()

    def _stop(self, status, reason, detail):
        write_stop(self.writer, status, reason, detail, self.progress.step, self.progress.samples)

    def abort(self, reason, detail, code):
        """Write the last line and leave at once: a destructor may wait for ranks that are gone."""
        print(detail, file=sys.stderr)
        self._stop("aborted", reason, detail[:DETAIL])
        if self.control is not None and reason == "environment":
            self.control.farewell()  # or the launcher ends the others before they have said why
        _leave(code)
