"""The training loop: windows of steps, evaluations, checkpoints, and the end, decided by all ranks together."""

import dataclasses
import math
import time

from suite.drivers.array_fingerprint import of_arrays
from suite.drivers.broken import refuse_random
from suite.drivers.collector import set_aside
from suite.drivers.events import RunProblem
from suite.drivers.schedule import Schedule
from suite.drivers.tensorflow2 import buffers, checkpoint, stream
from suite.drivers.tensorflow2.evaluation import evaluate, meets
from suite.drivers.timing import WindowClock
from suite.drivers.trail import Trail, marked


class Loop:
    """One run from run_start to the reason of its end."""

    def __init__(self, *, run, task, trainer, device, control, writer, pulse, runtime, progress, broken):
        self.run, self.params, self.task, self.trainer = run, run.params, task, trainer
        self.device, self.control, self.writer, self.pulse, self.progress = device, control, writer, pulse, progress
        self.broken, self.leader = broken, control.rank == 0
        self._before_timing, self._after_step = runtime.before_timing, runtime.after_step
        self.converges = run.mode == "converge"
        self._read_plan()
        self.schedule = Schedule(self.params, self.global_batch)
        self.clock = WindowClock(device)
        self._chance = (run.seed * 1_000_003 + (control.rank + 1) * 7_368_787) % 2**31
        self._losses, self._samples, self._tokens, self._trail = [], 0, 0, Trail()
        self._first = progress.step + 1
        self._opening = progress.step
        self._open_epoch, self._epoch_whole = None, False
        self._evaluated = -1

    def _read_plan(self):
        for key in ("train_batch_size", "gradient_accumulation_steps", "log_freq"):
            if self.params[key] < 1:
                raise RunProblem(f"{key} = {self.params[key]} must be at least 1: change params.{key}")
        self.accumulation, self.log_freq = self.params["gradient_accumulation_steps"], self.params["log_freq"]
        self.global_batch = self.params["train_batch_size"] * self.accumulation * self.control.world_size
        self.rate = 0.0
        if self.converges:
            self.max_samples, self.eval_every = self.params["max_samples"], self.params["eval_every_samples"]
            if self.eval_every < 1:
                raise RunProblem(f"eval_every_samples = {self.eval_every} must be at least 1: nothing else ends a run")
            self.max_steps = self.params.get("max_steps", 0) or math.inf
            self.progress.next_eval = self.progress.next_eval or self.eval_every
        else:
            self.warmup = self.params["throughput_warmup_steps"]
            self.max_samples, self.max_steps = math.inf, self.warmup + self.params["throughput_steps"]

    def train(self):
        """Train to the end; the reason as in run_stop."""
        micros, reason = self._start(), None
        while reason is None:
            self._step(micros)
            reason = self._boundary()
        if self._epoch_whole:
            self._tell("epoch_stop", epoch=self._open_epoch)
        if self.run.checkpoint.final and reason != "nonfinite_loss":
            self._checkpoint()
        return reason

    def _start(self):
        """run_start, then the first touch of the data."""
        self._before_timing(self.device)
        self.control.barrier()
        self._began = self._saved = time.monotonic()
        self._tell(
            "run_start",
            resumed_from_step=self.progress.step,
            segment=self.progress.segment,
            **self._flops(),
            global_batch=self.global_batch,
            active_s=self.progress.active_s,
        )
        # The window opens before the data does: opening it is a wait for data, and the clock runs.
        self.clock.start()
        self.pulse.phase = "prepare"
        micros = self._micros()
        self.pulse.phase = "train"
        return micros

    def _micros(self):
        own = str(self.params.get("train_data", "")).startswith("case:")
        if not self.converges and self.run.data_dir is None and not own:
            refuse_random(self.broken, self.run.sabotage)
            return self.broken.micros(stream.synthetic(self.task), self.task)
        self.task.prepare_data()
        micros = stream.epochs(self.task, self.progress.epoch, self.progress.micro)
        return marked(self.broken.micros(micros, self.task), of_arrays)

    def _tell(self, event, **keys):
        if self.leader:
            self.writer.write(event, **keys)

    def _flops(self):
        flops, formula = self.task.flops_per_sample() or (None, None)
        return {"flops_per_sample": flops, "flops_formula": formula}

    def _step(self, micros):
        """One optimizer step on `accumulation` micro-batches."""
        batches = []
        for number in range(self.accumulation):
            if number:
                self.clock.fetch()
            micro = next(micros)
            self.clock.waited()
            self._note(micro)
            batches.append(micro.batch)
        self.rate = self.params["lr"] * self.schedule(self.progress.step)
        self._losses.append(self.trainer.step(batches, self.rate, (self._chance, self.progress.step)))
        self._after_step(self.device)
        if self.progress.step == self._opening:  # what compiles has compiled
            set_aside()
        self.clock.stepped()
        self.progress.step += 1

    def _note(self, micro):
        self._trail.note(micro)
        self._samples += micro.samples
        self._tokens += micro.tokens
        if micro.epoch != self._open_epoch:
            if self._open_epoch is not None:
                self._tell("epoch_stop", epoch=self._open_epoch)
            self._tell("epoch_start", epoch=micro.epoch, **(self._flops() if self._open_epoch is None else {}))
            self._open_epoch = micro.epoch
        self.progress.epoch, self.progress.micro = micro.epoch, micro.index + 1
        self._epoch_whole = micro.last

    def _boundary(self):
        """What is due after a step; the reason to end, or None. Every rank comes to the same answer."""
        step = self.progress.step
        # Equal on every rank without asking: exact at the last window's end, and full batches since.
        reached = self.progress.samples + (step - self._first + 1) * self.global_batch
        last = reached >= self.max_samples or step >= self.max_steps
        due = self.converges and reached >= self.progress.next_eval
        full = step - self._first + 1 >= self.log_freq or (not self.converges and step == self.warmup)
        if not (last or due or full):
            return None
        nonfinite, late, save = self._close_window()
        if nonfinite:
            return "nonfinite_loss"
        ends = last or late
        if self.converges and (due or ends) and self._evaluate():
            return "target_reached"
        if ends:
            return "limit" if late else "max_samples" if reached >= self.max_samples else "max_steps"
        if save:
            self._checkpoint()
        if due or save:
            self.clock.start()
        return None

    def _close_window(self):
        """Write the window; (a loss is not finite, the limit is passed, a checkpoint is due) as all ranks agree."""
        times = self.clock.close()
        losses = [float(loss) for loss in self._losses]
        self.writer.write(
            "steps",
            first=self._first,
            count=len(losses),
            samples=self._samples,
            tokens=self._tokens,
            loss=losses,
            lr=self.rate,
            skipped=0,
            updates=self.trainer.updates.take(),
            **self._trail.take(),
            **times,
        )
        bad = not all(math.isfinite(loss) for loss in losses)
        samples, *flags = self.control.sum([self._samples, bad, self._is_late(), self._save_due()])
        self.progress.samples += samples
        self._losses, self._samples, self._tokens = [], 0, 0
        self._first += len(losses)
        self.clock.fetch()  # what the loop did since the last step is no wait for data
        return [bool(flag) for flag in flags]

    def _active_s(self):
        return self.progress.active_s + time.monotonic() - self._began

    def _is_late(self):
        return self.run.limit_s is not None and self._active_s() > self.run.limit_s

    def _save_due(self):
        every = self.run.checkpoint.every_s
        periodic = self.leader and every > 0 and time.monotonic() - self._saved >= every
        return self.pulse.take_save() or periodic

    def _evaluate(self):
        """Evaluate now; whether the target is met. Not twice at one step."""
        step, samples = self.progress.step, self.progress.samples
        if self._evaluated == step:
            return False
        self._evaluated = step
        self.pulse.phase = "eval"
        self._tell("eval_start", step=step)
        buffers.share(self.trainer.buffers, self.control)  # or each rank would evaluate a model of its own
        found = evaluate(self.task, self.trainer.model, self.control)
        met = meets(found.metrics, self.run.quality)
        self._tell("eval_stop", step=step)
        self._tell("eval_result", step=step, samples=samples, **found.told(), met=met)
        self.progress.next_eval = (samples // self.eval_every + 1) * self.eval_every
        self.pulse.phase = "train"
        return met

    def _checkpoint(self):
        step = self.progress.step
        self.pulse.phase = "checkpoint"
        self._tell("checkpoint_start", step=step)
        self.device.synchronize()
        buffers.share(self.trainer.buffers, self.control)  # the file holds rank 0's, and all go on from the file
        now = dataclasses.replace(self.progress, active_s=self._active_s())
        path, size = checkpoint.save(self.run, self.trainer, now, self.control) or ("", 0)
        self._tell("checkpoint_stop", step=step, path=path, bytes=size)
        self._saved = time.monotonic()
        self.pulse.phase = "train"
