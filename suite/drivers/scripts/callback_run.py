"""One rank of evidence `callback`, from its header to run_stop."""

import contextlib
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch.distributed as dist
from transformers import trainer

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.device import Device, EnvironmentProblem
from suite.drivers.pytorch.header import write_header
from suite.drivers.pytorch.pulse import Pulse
from suite.drivers.scripts.callback import TrainerEvents
from suite.drivers.scripts.heartbeats import Heartbeats
from suite.drivers.scripts.invocation import EXIT_ENVIRONMENT, EXIT_EXCEPTION
from suite.drivers.scripts.precision import told

ROOT = str(Path(__file__).resolve().parents[3])


class CallbackRun:
    """Runs the script in this process, under the name that its users give it."""

    def __init__(self, invocation):
        self.invocation, self.run, self.place = invocation, invocation.run, invocation.place
        self.events = None
        self.pulse = None
        self._said = ""
        """What it gave as its exit status in place of a number."""

    def train(self):
        """Run the script to its end; the exit status."""
        try:
            self._open()
            return self._end(self._script())
        except BaseException as problem:  # whatever the script raises: only run_stop ends a run
            self.abort(problem)

    def _open(self):
        """Device, header and callback; the header is the first line also where this fails."""
        device = precision = None
        try:
            device = Device.open(self.run.device, self.place.local_rank, capabilities=self.run.capabilities)
            precision = told(device)
        finally:
            write_header(self.invocation.writer, self.run, self.place, device, precision)
        held = Heartbeats(self.invocation.writer)
        self.pulse = Pulse(held, self.run.heartbeat_s, self._progress)
        self.invocation.tell("init_start")
        problem = self.invocation.world_problem()
        if problem:
            raise EnvironmentProblem(problem)
        self.events = TrainerEvents(self.invocation, device, self.pulse, held, precision, self.abort)
        trainer.DEFAULT_CALLBACKS.append(self.events)

    def _script(self):
        """The script's own exit status."""
        path = self.invocation.path
        sys.argv = [path, *self.invocation.arguments]
        # As its users have it: its own folder first, and none of our packages before theirs.
        sys.path[:] = [os.path.dirname(path), *(entry for entry in sys.path if entry != ROOT)]
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as left:
            if left.code is None or isinstance(left.code, int):
                return left.code or 0
            print(left.code, file=sys.stderr)
            self._said = f": {left.code}"
            return EXIT_EXCEPTION
        return 0

    def _progress(self):
        return (self.events.course.step, self.events.course.samples) if self.events is not None else (0, 0)

    def _end(self, code):
        """The last line, by what was seen: a status of 0 alone proves nothing."""
        course = self.events.course
        self.events.finish()
        ending = ("success", course.reason, "")
        if code != 0:
            ending = ("aborted", "exception", f"the script left with status {code}{self._said}")
        elif not course.trained or course.step == 0:
            detail = "the script left with status 0 and trained nothing: no Trainer came to the end of its steps"
            ending, code = ("aborted", "exception", detail), EXIT_EXCEPTION
        elif course.nonfinite:
            ending = ("aborted", "nonfinite_loss", "a loss is not finite: lower the learning rate")
        self.invocation.stop(*ending, *self._progress())
        self.pulse.stop()
        if self.events.group is not None and dist.is_initialized():
            self.events.group.farewell()
            self.events.group.close()
        return code

    def abort(self, problem):
        """Write the last line and leave at once: a destructor may wait for ranks that are gone."""
        environment = isinstance(problem, EnvironmentProblem)
        reason = "environment" if environment else "config" if isinstance(problem, RunProblem) else "exception"
        detail = str(problem) if reason != "exception" else f"{type(problem).__name__}: {problem}"
        if reason == "exception":
            traceback.print_exception(type(problem), problem, problem.__traceback__)
        print(detail, file=sys.stderr)
        self.invocation.stop("aborted", reason, detail, *self._progress())
        if environment and self.events is not None and self.events.group is not None:
            self.events.group.farewell()  # or the launcher ends the others before they have said why
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(EXIT_ENVIRONMENT if environment else EXIT_EXCEPTION)
