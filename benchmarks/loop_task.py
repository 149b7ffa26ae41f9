"""Tasks whose data iterator lets a hand-written loop, or the same loop without events, take turns with the driver's.

Started as a train.py by overhead_loop.py and overhead_events.py. LOOP_TASK names the task, LOOP_BLOCK the steps of a
block, LOOP_ANSWER the file for the seconds of each block.
"""

import copy
import itertools
import json
import os
import time
from pathlib import Path

import torch
from train import FillBlanks

from suite.drivers import events, timing
from suite.drivers.pytorch import Task, run
from suite.drivers.pytorch.optimizer import CLASSES, decayed_groups, fused

BLOCK = int(os.environ["LOOP_BLOCK"])
WIDTH, DEPTH, ROWS = 1024, 4, 128


class Turns:
    """Seconds of the blocks of both sides, from the iterator's point of view."""

    def __init__(self):
        self.taken = {f"{side}_{clock}": [] for side in ("driver", "minimal") for clock in ("wall", "cpu")}

    def note(self, side, since):
        """One block is over."""
        for clock, before, now in zip(("wall", "cpu"), since, self.now()):
            self.taken[f"{side}_{clock}"].append(now - before)

    def write(self):
        """The answer so far: whoever waits for it may end this process at any time."""
        answer = Path(os.environ["LOOP_ANSWER"])
        partial = answer.with_suffix(".partial")
        partial.write_text(json.dumps(self.taken))
        partial.replace(answer)

    @staticmethod
    def now():
        """Wall and CPU seconds of this process."""
        return time.perf_counter(), time.process_time()


class Interleaved:
    """A task's batches, BLOCK by BLOCK, with the other side's turn between two blocks."""

    def build(self):
        """The model, and its twin for the hand-written loop."""
        self.model = super().build()
        self.twin = copy.deepcopy(self.model)
        return self.model

    def train_batches(self, epoch, skip=0):
        """Endless: the same batches again and again, made before the clock starts."""
        batches = list(itertools.islice(super().train_batches(epoch, skip), BLOCK))
        if len(batches) < BLOCK:
            raise SystemExit(f"an epoch has {len(batches)} batches; LOOP_BLOCK={BLOCK} wants more")
        yield from self._interleaved(batches)

    def _interleaved(self, batches):
        turns, minimal = Turns(), Minimal(self, self.twin)
        yield from self._warm_up(batches)
        minimal.train(batches)
        while True:
            since = turns.now()
            yield from batches
            turns.note("driver", since)
            since = turns.now()
            minimal.train(batches)
            turns.note("minimal", since)
            turns.write()

    @staticmethod
    def _warm_up(batches):
        """A block of the driver's, and the one batch that it always has in hand: a turn then ends with its window."""
        return itertools.chain(batches, batches[:1])


class Minimal:
    """What one would write by hand: forward, backward, clip, step, zero."""

    def __init__(self, task, model):
        self.task, self.model = task, model
        params = task.params
        self.limit = params["clip_grad_norm"]
        options = {"lr": params["lr"], "betas": (params["adam_beta1"], params["adam_beta2"]), "eps": params["adam_eps"]}
        groups = decayed_groups(model, params["weight_decay"])
        name = params["optimizer"]
        self.optimizer = CLASSES[name](groups, fused=fused(name, task.device), **options)
        self.parameters = list(model.parameters())

    def train(self, batches):
        """One block. The loss is read once a block, as the driver reads it once a window."""
        losses = []
        for batch in batches:
            loss = self.task.loss(self.model, batch)
            loss.backward()
            if self.limit:
                torch.nn.utils.clip_grad_norm_(self.parameters, self.limit)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        return torch.stack(losses).tolist()


class Silent(Interleaved):
    """The driver takes both turns: one as it is, one without its event writer and its clock of steps."""

    def _interleaved(self, batches):
        turns, parts = Turns(), _Parts()
        yield from self._warm_up(batches)
        while True:
            for side in ("driver", "minimal"):
                parts.switch(on=side == "driver")
                since = turns.now()
                yield from batches
                turns.note(side, since)
            parts.switch(on=True)
            turns.write()


class _Parts:
    """The event writer and the clock of the driver, which can be taken out and put back."""

    NAMES = ("start", "fetch", "waited", "forwarded", "stepped", "close")

    def __init__(self):
        self._own = {name: getattr(timing.WindowClock, name) for name in self.NAMES}
        self._write = events.EventWriter.write

    def switch(self, *, on):
        """Put them in or take them out. The driver's window ends with a block, so none is half told."""
        events.EventWriter.write = self._write if on else _nothing
        for name, own in self._own.items():
            setattr(timing.WindowClock, name, own if on else _no_times if name == "close" else _nothing)


def _nothing(*_, **__):
    return True


def _no_times(_):
    return {}


class Glm(Interleaved, FillBlanks):
    """The case itself."""


class Dense(Interleaved, Task):
    """Four dense layers, some ten milliseconds a step on one core."""

    def build(self):
        """The net and its twin."""
        layers = [layer for _ in range(DEPTH) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers)
        self.twin = copy.deepcopy(self.model)
        return self.model

    def prepare_data(self):
        """Nothing to read."""

    def train_batches(self, epoch, skip=0):
        """Random rows."""
        generator = torch.Generator().manual_seed(epoch)
        rows = [torch.randn(ROWS, WIDTH, generator=generator) for _ in range(BLOCK)]
        yield from self._interleaved([{"x": row, "y": row.roll(1, 1)} for row in rows])

    def loss(self, model, batch):
        """Squared error."""
        return (model(batch["x"]) - batch["y"]).square().mean()

    def count(self, batch):
        """Rows, no tokens."""
        return {"samples": len(batch["x"]), "tokens": 0}

    def evaluate(self, model):
        """Never asked for."""
        return {}


class Tiny(Silent, Dense):
    """A net so small that what a step of the driver costs beside it can be seen."""

    def build(self):
        """One layer."""
        self.model = torch.nn.Linear(8, 8)
        self.twin = None
        return self.model

    def train_batches(self, epoch, skip=0):
        """Random rows."""
        row = torch.randn(4, 8, generator=torch.Generator().manual_seed(epoch))
        yield from self._interleaved([{"x": row, "y": row}] * BLOCK)


TASKS = {"glm": Glm, "dense": Dense, "tiny": Tiny}

if __name__ == "__main__":
    run(TASKS[os.environ["LOOP_TASK"]])
