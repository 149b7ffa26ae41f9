"""The events of a transformers Trainer, told by a callback that the script knows nothing of.

The Trainer calls it on every rank, in an order of its own: an evaluation and a checkpoint follow the step that asked
for them, the loss comes with the log line after the step. So a window that was closed is written with its loss, once
the log line is there, and before what follows it.
"""

import dataclasses
import math
import time

import torch
from transformers import TrainerCallback

from suite.drivers.events import RunProblem
from suite.drivers.pytorch import checksum
from suite.drivers.pytorch.device import EnvironmentProblem
from suite.drivers.pytorch.evaluation import meets
from suite.drivers.pytorch.expectation import check_expectations
from suite.drivers.pytorch.timing import WindowClock
from suite.drivers.scripts.joined import JoinedGroup, Trainable
from suite.drivers.scripts.precision import effective
from suite.drivers.scripts.trainer_values import evaluates, measures, rows_of


@dataclasses.dataclass
class Course:
    """How far the training is."""

    step: int = 0
    samples: int = 0
    """Of all ranks, as of the last window that they agreed on."""
    reason: str = "max_steps"
    trained: bool = False
    """The Trainer came to the end of its loop."""
    nonfinite: bool = False


class TrainerEvents(TrainerCallback):
    """Writes what a Trainer does as events, and ends a run whose verdict is certain."""

    def __init__(self, invocation, device, pulse, held, precision, abort):
        """`abort(problem)` ends the rank at once: a script may catch whatever is raised here."""
        self.run, self.place, self.writer = invocation.run, invocation.place, invocation.writer
        self.tell, self.device, self.pulse, self.abort = invocation.tell, device, pulse, abort
        self.precision, self._held = precision, held
        self.converges = self.run.mode == "converge"
        self.course = Course()
        self.group = None
        self.clock = WindowClock(device)
        self._began = None
        self._first, self._count, self._samples = 1, 0, 0
        self._counted = 0
        self._pending = None
        self._losses = []
        self._phase = None
        self._epoch = 0

    # Begin and end

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Look at what the ranks are, then start the clock, before the first batch is drawn."""
        try:
            self._begin(args, state, model)
        except (EnvironmentProblem, RunProblem) as problem:
            self.abort(problem)

    def _begin(self, args, state, model):
        if self._began is not None:
            raise RunProblem("the script trains a second time: a run is one training, make two cases of it")
        self._check_world(args)
        self.group = JoinedGroup(self.place, self.device)
        seen = effective(self.precision, model, self.device)
        check_expectations(self.run, self.place, self.device, seen, self.group)
        if seen["compute"] != self.precision["compute"]:
            raise EnvironmentProblem(
                f"trains in {seen['compute']}, and its launcher was told {self.precision['compute']}: say one of them"
            )
        args.logging_nan_inf_filter = False  # it hides a loss that is not finite from the log, and so from us
        self._watch_batches(model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        self.tell("init_stop", parameters=parameters, trainable=trainable)
        self.device.reset_memory_peak()
        self.group.barrier()
        self._began = time.monotonic()
        self.course.step = state.global_step
        self._first = state.global_step + 1
        self.tell(
            "run_start",
            resumed_from_step=state.global_step,
            segment=1,
            global_batch=args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            active_s=0.0,
        )
        self.clock.start()
        self.pulse.phase = "train"

    def _check_world(self, args):
        if args.world_size != self.place.world_size:
            raise EnvironmentProblem(
                f"the script trains with {args.world_size} ranks where {self.place.world_size} were started:"
                " it does not take part in their group"
            )
        if args.n_gpu > 1:
            raise EnvironmentProblem(
                f"one rank drives {args.n_gpu} devices: start one for each, or hide all but its own from it"
            )

    def _watch_batches(self, model):
        """Count the samples of every forward pass that trains; its shapes are known without waiting for the device."""

        def count(module, positional, named):
            if module.training:
                self._counted += rows_of((*positional, *named.values()))

        disable = getattr(getattr(torch, "compiler", None), "disable", lambda function: function)
        model.register_forward_pre_hook(disable(count), with_kwargs=True)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        """Compare the ranks; what the script does from here on is its own affair, evaluations apart: it saves."""
        self._close_window()
        self._flush()
        self._leave_phase()
        self.pulse.phase = "checksum"
        self.tell("memory", **self.device.memory())
        compared = checksum.compare(Trainable(model), self.group)
        self.writer.write("checksum", step=self.course.step, **compared)
        self.course.trained = True
        self._enter("checkpoint")

    def finish(self):
        """The script is over."""
        self._leave_phase()

    # Steps

    def on_epoch_begin(self, args, state, control, **kwargs):
        """Epochs count from 1."""
        self._epoch += 1
        self.tell("epoch_start", epoch=self._epoch)

    def on_epoch_end(self, args, state, control, **kwargs):
        """An evaluation or a checkpoint once an epoch."""
        if not self.converges:
            control.should_evaluate = control.should_save = False
        if control.should_evaluate or control.should_save:
            self._close_window()
        if not control.should_log:
            self._flush()
        if not control.should_training_stop or state.global_step >= state.max_steps:
            self.tell("epoch_stop", epoch=self._epoch)
        self._follow(control)
        return control

    def on_step_begin(self, args, state, control, **kwargs):
        """The batches of a step are there."""
        self._flush()
        if self._phase is not None:
            self._resume()
        self.clock.waited()

    def on_step_end(self, args, state, control, **kwargs):
        """A step was given to the device."""
        self.clock.stepped()
        self._count += 1
        self._samples, self._counted = self._samples + self._counted, 0
        self.course.step = state.global_step
        ends = control.should_training_stop or state.global_step >= state.max_steps
        if not self.converges:
            control.should_evaluate = control.should_save = False
            warmup = self.run.params.throughput_warmup_steps
            ends = ends or state.global_step >= warmup + self.run.params.throughput_steps
            control.should_training_stop = ends
            ends = ends or state.global_step == warmup
        full = self._count >= self.run.params.log_freq
        if ends or full or control.should_evaluate or control.should_save:
            if self._close_window():
                self.course.reason = "limit"
                control.should_training_stop = True
                control.should_evaluate = self.converges and evaluates(args)
        self._follow(control)
        return control

    def on_log(self, args, state, control, logs=None, **kwargs):
        """The loss of the steps since the last line."""
        loss = (logs or {}).get("loss")
        if loss is not None:
            losses = self._losses if self._pending is None else self._pending["loss"]
            losses.append(float(loss))
            self.course.nonfinite = self.course.nonfinite or not math.isfinite(loss)
        self._follow(control)

    def _close_window(self):
        """Measure the window and agree on its samples; whether the time limit is passed, as all ranks say."""
        if not self._count:
            return False
        self._flush()
        self._held.begin()
        times = self.clock.close()
        closed = round(time.monotonic(), 6)
        late = self.run.limit_s is not None and time.monotonic() - self._began > self.run.limit_s
        total, late = self.group.sum([self._samples, late])
        self.course.samples += total
        losses, self._losses = self._losses[-self._count :], []
        window = {"t": closed, "first": self._first, "count": self._count, "samples": self._samples, "loss": losses}
        self._pending = {**window, **times}
        self._first += self._count
        self._count = self._samples = 0
        self.clock.fetch()
        return bool(late)

    def _flush(self):
        """Write the window that was closed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self.writer.write("steps", **pending)
            self._held.end()

    # Evaluations and checkpoints

    def _follow(self, control):
        """What the Trainer does next: a log line first, then an evaluation, then a checkpoint."""
        if control.should_log or self._phase is not None:
            return
        if control.should_evaluate:
            self._enter("eval")
        elif control.should_save:
            self._enter("checkpoint")

    def _enter(self, phase):
        self._flush()
        self._leave_phase()
        self._phase = self.pulse.phase = phase
        self.tell(f"{phase}_start", step=self.course.step)

    def _leave_phase(self, **keys):
        if self._phase is not None:
            phase, self._phase = self._phase, None
            more = {"path": "", "bytes": 0} if phase == "checkpoint" else {}
            self.tell(f"{phase}_stop", step=self.course.step, **more)
        self.pulse.phase = "finish" if self.course.trained else "train"

    def _resume(self):
        self._leave_phase()
        self.clock.start()

    def on_prediction_step(self, args, state, control, **kwargs):
        """The script evaluates by itself, before or after training."""
        if self._began is not None and self._phase != "eval":
            self._enter("eval")

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """The result; training ends at the first that meets the target."""
        if self._began is None:
            return control
        if self._phase != "eval":
            self._enter("eval")
        self._leave_phase()
        found = measures(metrics or {})
        self.course.nonfinite = self.course.nonfinite or not math.isfinite(found.get("loss", 0.0))
        if self.run.quality.metric in found:
            met = meets(found, self.run.quality)
            samples = self.course.samples
            self.tell("eval_result", step=self.course.step, samples=samples, metrics=found, met=met)
            if met and self.converges and not self.course.trained:
                self.course.reason = "target_reached"
                control.should_training_stop = True
        if self.course.trained or control.should_save or args.save_strategy == "best":
            self._enter("checkpoint")
        else:
            self.clock.start()
        return control

    def on_predict(self, args, state, control, **kwargs):
        """An evaluation without a result of ours."""
        if self._phase == "eval":
            self._leave_phase()
            if self.course.trained:
                self._enter("checkpoint")

    def on_save(self, args, state, control, **kwargs):
        """A checkpoint of the script's is written."""
        if self._phase == "checkpoint" and not self.course.trained:
            self._resume()
