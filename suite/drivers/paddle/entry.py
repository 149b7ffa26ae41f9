"""`run(TaskClass)`: the one entry of every case's train.py."""

import contextlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from suite.drivers.events import EventWriter, RunProblem, RunSpec, find_place
from suite.drivers.paddle import checkpoint, checksum, optimizer, requality, sabotage
from suite.drivers.paddle.assembly import assemble, check_params
from suite.drivers.paddle.device import Device
from suite.drivers.paddle.distributed import Group
from suite.drivers.paddle.expectation import check_expectations
from suite.drivers.paddle.header import write_header
from suite.drivers.paddle.loop import Loop
from suite.drivers.paddle.precision import Precision
from suite.drivers.paddle.problem import EnvironmentProblem
from suite.drivers.progress import Progress
from suite.drivers.pulse import Pulse, write_stop
from suite.drivers.slots import Runtime, fill_slots

MODES = ("converge", "throughput", "evaluate")
EXIT_EXCEPTION = 1
EXIT_ENVIRONMENT = 3
DETAIL = 2000
"""Characters of an exception that run_stop carries; the log has it all."""


def run(task_class):
    """Train as run.json says. Returns after an orderly end; leaves the process with 1 or 3 after any other."""
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
    except BaseException as problem:  # also SystemExit of a vendor's code: only run_stop ends a run
        traceback.print_exc()
        rank.abort("exception", f"{type(problem).__name__}: {problem}", EXIT_EXCEPTION)


@dataclass
class Chip:
    """What the header reports: the device and all that was decided on it before anything is built."""

    device: Any
    precision: Any
    precision_facts: dict
    slots: Any
    runtime: Any

    def replaced(self):
        """The header's `slots`."""
        return {**self.slots.replaced(), **self.runtime.replaced()}


class Rank:
    """This process's part of the run, from the header to run_stop."""

    def __init__(self, task_class, spec, place, writer, broken):
        self.task_class, self.spec, self.place, self.writer, self.broken = task_class, spec, place, writer, broken
        self.progress = Progress()
        self.group = None
        self.pulse = None

    def train(self):
        """All of it."""
        chip = self._open_chip()
        self.pulse = Pulse(self.writer, self.spec.heartbeat_s, lambda: (self.progress.step, self.progress.samples))
        chip.device.on_fallback = self._warn_fallback
        self._tell("init_start")
        self.group = Group(self.place, chip.device)
        check_expectations(self.spec, self.place, chip.device, chip.precision_facts, self.group)
        if self.spec.mode == "evaluate":
            self._evaluate(self._make_task(chip, self.place.rank), chip)
            return
        task = self._make_task(chip, self.broken.data_rank(self.place.rank))
        self.broken.task(task)
        parts = assemble(self.spec, task, self.group, self.broken.averages)
        self.broken.parts(parts, chip.precision, self.place)
        if self.spec.resume:
            path = Path(self.spec.run_dir, self.spec.resume)
            self.progress = checkpoint.load(path, self.spec, parts.model, parts.stepper, self.group, chip.device)
        parameters, trainable = parts.counts()
        self._tell("init_stop", parameters=parameters, trainable=trainable)
        loop = Loop(
            run=self.spec,
            task=task,
            parts=parts,
            device=chip.device,
            precision=chip.precision,
            group=self.group,
            writer=self.writer,
            pulse=self.pulse,
            runtime=chip.runtime,
            progress=self.progress,
            broken=self.broken,
        )
        self.broken.loop(loop)
        reason = loop.train()
        self._finish(reason, parts.model, chip)

    def _make_task(self, chip, rank):
        return self.task_class(self.spec, chip.device, chip.slots, rank, self.place.world_size)

    def _evaluate(self, task, chip):
        """A saved model's quality instead of a training."""
        self.pulse.phase = "eval"
        at = requality.evaluate_again(self.spec, task, chip.precision, self.group, self._tell)
        self.progress.step, self.progress.samples = at
        self._stop("success", "evaluated", "")
        self._leave()

    def _open_chip(self):
        """The device and what is decided on it; the header is the first line also where this fails."""
        device = None
        try:
            self._check_plan()
            if self.spec.params["threads"] > 0:
                paddle.base.core.set_num_threads(self.spec.params["threads"])
            device = Device.open(self.spec.device, self.place.local_rank, self.spec.capabilities)
            runtime = Runtime(self.spec.runtime_dir)
            runtime.setup(device, self.spec)
            precision = Precision(self.spec.params["precision"], device)
            standard = {"optimizer": optimizer.make_optimizer, **self.task_class.default_slots()}
            slots = fill_slots(standard, self.spec.extern_dir, self.spec.slots)
            chip = Chip(device, precision, precision.facts(), slots, runtime)
        except BaseException:
            write_header(self.writer, self.spec, self.place, device)
            raise
        write_header(self.writer, self.spec, self.place, device, chip.precision_facts, chip.replaced())
        return chip

    def _check_plan(self):
        check_params(self.spec.params)
        sabotage.check(self.spec.sabotage)
        if self.spec.mode not in MODES:
            raise RunProblem(f"mode {self.spec.mode!r} is not one of {', '.join(MODES)}: plan the run again")

    def _tell(self, event, **keys):
        if self.place.rank == 0:
            self.writer.write(event, **keys)

    def _warn_fallback(self, entry):
        self.writer.write("warning", text=f"fallback: {entry['what']}: {entry['why']}")

    def _finish(self, reason, model, chip):
        """What follows the last step: memory, the ranks' comparison, the last line."""
        self.pulse.phase = "checksum"
        self._tell("memory", **chip.device.memory())
        # Read again: what the header says was in force before the first step.
        found = {"precision": chip.precision.facts(), **checksum.compare(model, self.group)}
        self.writer.write("checksum", step=self.progress.step, **found)
        status = "aborted" if reason == "nonfinite_loss" else "success"
        detail = "a loss is not finite: lower lr or change precision" if status == "aborted" else ""
        self._stop(status, reason, detail)
        self._leave()

    def _leave(self):
        self.pulse.stop()
        self.group.farewell()
        self.group.close()

    def _stop(self, status, reason, detail):
        write_stop(self.writer, status, reason, detail, self.progress.step, self.progress.samples)

    def abort(self, reason, detail, code):
        """Write the last line and leave at once: a destructor may wait for ranks that are gone."""
        print(detail, file=sys.stderr)
        self._stop("aborted", reason, detail[:DETAIL])
        if self.group is not None and reason == "environment":
            self.group.farewell()  # or the launcher ends the others before they have said why
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
