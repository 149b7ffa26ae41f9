"""The training loop: windows of steps, evaluations, checkpoints, and the end, decided by all ranks together."""

import contextlib
import dataclasses
import math
import time

import torch

from suite.drivers.broken import refuse_random
from suite.drivers.collector import set_aside
from suite.drivers.events import RunProblem
from suite.drivers.pytorch import batches, checkpoint, trail
from suite.drivers.pytorch.assembly import global_batch
from suite.drivers.pytorch.evaluation import evaluate, meets
from suite.drivers.pytorch.layout import DataRanks
from suite.drivers.pytorch.prefetch import Prefetcher
from suite.drivers.pytorch.timing import WindowClock
from suite.drivers.pytorch.workers import Workers, loader

PINNED = 2
"""Micro-batches of the loader's processes that a thread pins ahead."""


class Loop:
    """One run from run_start to the reason of its end."""

    def __init__(self, *, run, task, parts, device, precision, group, layout, writer, pulse, runtime, progress, broken):
        self.run, self.params, self.task, self.parts = run, run.params, task, parts
        self.device, self.precision, self.group = device, precision, group
        self.writer, self.pulse, self.progress, self.broken = writer, pulse, progress, broken
        self.leader = group.rank == 0
        self.converges = run.mode == "converge"
        self.accumulation = self.params["gradient_accumulation_steps"]
        self.layout, self.data_ranks = layout, DataRanks(group, layout)
        self.global_batch = global_batch(self.params, layout.data_size)
        self.log_freq = self.params["log_freq"]
        self.clock = WindowClock(device)
        self._after_backward, self._after_step = runtime.after_backward, runtime.after_step
        self._before_timing = runtime.before_timing
        self._read_plan()
        self._losses, self._samples, self._tokens, self._trail = [], 0, 0, trail.Trail()
        self._first = progress.step + 1
        self._opening = progress.step
        self._open_epoch, self._epoch_whole = None, False
        self._workers = None
        self._evaluated = -1
        # Where ranks gather parts of a model, a forward pass waits for others; else it is this rank's own time.
        self._times_forward = device.stamps_freely and not layout.divides

    def _read_plan(self):
        for key in ("train_batch_size", "gradient_accumulation_steps", "log_freq"):
            if self.params[key] < 1:
                raise RunProblem(f"{key} = {self.params[key]} must be at least 1: change params.{key}")
        if self.converges:
            self.max_samples, self.eval_every = self.params["max_samples"], self.params["eval_every_samples"]
            self.max_steps = self.params.get("max_steps", 0) or math.inf
            self._read_interval(self.params.get("val_check_interval", 0))
            if self.eval_every < 1:
                raise RunProblem(f"eval_every_samples = {self.eval_every} must be at least 1: nothing else ends a run")
            self.progress.next_eval = self.progress.next_eval or self.eval_every
        else:
            self.warmup = self.params["throughput_warmup_steps"]
            self.max_samples, self.max_steps = math.inf, self.warmup + self.params["throughput_steps"]

    def _read_interval(self, interval):
        """Evaluations every `interval` steps, where it is not 0."""
        if interval > self.max_steps:
            raise RunProblem(
                f"val_check_interval = {interval} is above max_steps = {self.max_steps}: no evaluation would come"
                " before the end; lower params.val_check_interval"
            )
        self.eval_every = interval * self.global_batch or self.eval_every

    def train(self):
        """Train to the end; the reason as in run_stop."""
        stream = self._start()
        try:
            reason = None
            while reason is None:
                self._step(stream)
                reason = self._boundary()
            if self._epoch_whole:
                self._tell("epoch_stop", epoch=self._open_epoch)
        finally:
            if self._workers:
                self._workers.close()  # first, for the stream's thread may wait for them
            stream.close()
        if self.run.checkpoint.final and reason != "nonfinite_loss":
            self._checkpoint()
        return reason

    def _start(self):
        """run_start, then the first touch of the data."""
        self._before_timing(self.device)
        self.device.reset_memory_peak()
        self.group.barrier()
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
        # Processes build ahead by themselves; the thread then pins what they have built.
        return Prefetcher(micros, self.device, PINNED if self._workers else self.params["num_workers"])

    def _micros(self):
        own = str(self.params.get("train_data", "")).startswith("case:")
        if not self.converges and self.run.data_dir is None and not own:
            refuse_random(self.broken, self.run.sabotage)
            return self.broken.micros(batches.synthetic(self.task), self.task)
        self.task.prepare_data()
        if self.task.prepares_model:
            self.group.share_parameters(self.parts.model)
        cursor = (self.progress.epoch, self.progress.micro)
        if loader(self.params) == "process":
            micros = self._workers = Workers(self.task, *cursor)
        else:
            micros = batches.epochs(self.task, *cursor)
        return trail.marked(self.broken.micros(micros, self.task))

    def _tell(self, event, **keys):
        if self.leader:
            self.writer.write(event, **keys)

    def _flops(self):
        flops, formula = self.task.flops_per_sample() or (None, None)
        return {"flops_per_sample": flops, "flops_formula": formula}

    def _step(self, stream):
        """One optimizer step on `accumulation` micro-batches. Nothing here waits for the device."""
        total = None
        for number in range(1, self.accumulation + 1):
            if number > 1:
                self.clock.fetch()
            micro = next(stream)
            self.clock.waited()
            self._note(micro)
            local = number < self.accumulation
            with self.group.accumulate(self.parts.trained) if local else contextlib.nullcontext():
                loss = self._backward(micro.batch)
            total = loss if total is None else total + loss
        self._after_backward(self.device)
        self.parts.stepper.step(self.progress.step)
        self._after_step(self.device)
        if self.progress.step == self._opening:  # what compiles has compiled
            set_aside()
        self.clock.stepped()
        self._losses.append(total if self.accumulation == 1 else total / self.accumulation)
        self.progress.step += 1

    def _backward(self, batch):
        with self.precision.autocast():
            loss = self.task.loss(self.parts.trained, batch)
        if self._times_forward:
            self.clock.forwarded()
        share = loss if self.accumulation == 1 else loss / self.accumulation
        if self.precision.scaler:
            share = self.precision.scaler.scale(share)
        share.backward()
        return loss.detach()

    def _note(self, micro):
        self._trail.note(micro)
        if self.layout.counts:
            self._samples += micro.samples
            self._tokens += micro.tokens
        if micro.epoch != self._open_epoch:
            if self._open_epoch is not None:
                self._tell("epoch_stop", epoch=self._open_epoch)
            # Of the first epoch: the data is open by now, and may show what was estimated before.
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
        losses = torch.stack([loss.reshape(()) for loss in self._losses]).float().cpu().tolist()
        count = len(losses)
        self.writer.write(
            "steps",
            first=self._first,
            count=count,
            samples=self._samples,
            tokens=self._tokens,
            loss=losses,
            lr=self.parts.stepper.lr,
            **self.parts.stepper.take_counts(),
            **self._trail.take(),
            **times,
        )
        bad = not all(math.isfinite(loss) for loss in losses)
        samples, *flags = self.group.sum([self._samples, bad, self._is_late(), self._save_due()])
        self.progress.samples += samples
        self._losses, self._samples, self._tokens = [], 0, 0
        self._first += count
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
        self.group.share_buffers(self.parts.model)  # or each rank would evaluate a model of its own
        found = evaluate(self.task, self.parts.forward, self.precision, self.data_ranks)
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
        now = dataclasses.replace(self.progress, active_s=self._active_s())
        written = checkpoint.save(self.run, self.parts.model, self.parts.stepper, now, self.group, self.device)
        path, size = written or ("", 0)
        self._tell("checkpoint_stop", step=step, path=path, bytes=size)
        self._saved = time.monotonic()
        self.pulse.phase = "train"
