"""The toy in the frameworks beside PyTorch: many runs in one process, on a clock that only the toy's own work moves."""

from __future__ import annotations

import pytest

from suite.drivers.sabotage import TABLE
from tests import paddle_toy, tensorflow2_toy
from tests.sabotage.cells import job_of
from tests.sabotage.toy import CLOCK, Job, Kind

HEAD = (
    """
import os
import sys
import time

import numpy as np

TRUE = np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)


"""
    + CLOCK
    + '''

class Points:
    """Fits four weights to a plane; the held-out points are noisy."""

    part = "held out"

    def prepare_data(self):
        random = np.random.default_rng(5)
        self.x = random.normal(size=(256, 4)).astype(np.float32)
        self.y = self.x @ TRUE
        self.held = random.normal(size=(100, 4)).astype(np.float32)
        self.right = self.held @ TRUE + np.float32(0.1) * random.normal(size=(100, 1)).astype(np.float32)

    def evaluate_on_training_data(self):
        self.part, self.held, self.right = "train", self.x[:100], self.y[:100]

    def train_batches(self, epoch, skip=0):
        order = np.random.default_rng([self.run.seed, epoch]).permutation(256)
        size = self.params["train_batch_size"]
        for start in range(0, 256, size * self.world_size):
            rows = order[start : start + size * self.world_size][self.rank * size : (self.rank + 1) * size]
            yield {"x": self.x[rows], "y": self.y[rows]}

    def shuffle_labels(self, batch, generator):
        return {**batch, "y": generator.permutation(batch["y"])}

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 0}

    def evaluate(self, model):
        CLOCK.sleep(0.1)
        mine = slice(self.rank, None, self.world_size)
        for row in range(100)[mine]:
            self.asks(self.part, row)
        error = self.scores(model, self.held[mine]) - self.right[mine]
        return {"mse": (float((error**2).sum()), len(error))}


class Left(Exception):
    """In place of the end of the process."""


def leave(code):
    raise Left


def play(run, task):
    time.sleep, time.monotonic, time.perf_counter, time.time = CLOCK.sleep, CLOCK.read, CLOCK.read, CLOCK.wall
    for job in sys.argv[1:]:
        os.environ["MASTER_PORT"], os.environ["TRAINMARK_RUN"] = job.split(":", 1)
        try:
            run(task)
        except (Left, SystemExit):  # of a device that leaves
            pass
'''
)

TENSORFLOW2 = (
    HEAD
    + '''

import tensorflow as tf

from suite.drivers.tensorflow2 import Task, entry, run
from suite.drivers.tensorflow2.trainer import Trainer


class Plane(tf.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        self.weight = tf.Variable(tf.zeros((4, 1)), name="weight")
        self.bias = tf.Variable(tf.zeros(1), name="bias")
        self.mean = tf.Variable(tf.zeros(4), trainable=False, name="mean")

    def __call__(self, x, training):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, 0))
        product = tf.cast(x, self.dtype) @ tf.cast(self.weight, self.dtype)
        return tf.cast(product, tf.float32) + self.bias


class Fit(Points, Task):
    def build(self):
        self.score = None
        return Plane(self.dtype)

    def loss(self, model, batch, chance):
        return tf.reduce_mean((model(batch["x"], training=True) - batch["y"]) ** 2)

    def scores(self, model, x):
        """Traced once, as cases do."""
        self.score = getattr(self, "score", None) or tf.function(lambda x: model(x, training=False))
        return self.score(tf.constant(x)).numpy()


if __name__ == "__main__":
    step = Trainer.step

    def paced(self, *words):
        CLOCK.sleep(0.03)
        return step(self, *words)

    Trainer.step, entry._leave = paced, leave
    play(run, Fit)
'''
)

PADDLE = (
    HEAD
    + """

import paddle

from suite.drivers.paddle import Task, run


class Fit(Points, Task):
    def build(self):
        return paddle.nn.Sequential(paddle.nn.Dropout(0.0), paddle.nn.Linear(4, 1))

    def loss(self, model, batch):
        CLOCK.sleep(0.03)
        return (model(batch["x"]) - batch["y"]).square().mean()

    def scores(self, model, x):
        return model(self.device.to(x)).numpy()


if __name__ == "__main__":
    play(run, Fit)
"""
)

ALONE = {"distribution_strategy": "off", "all_reduce_alg": "auto", "threads": 0}
"""A process of several runs: TensorFlow takes threads and a cluster only before it has computed anything."""
KINDS = {
    "tensorflow2": Kind(framework="tensorflow2", train=TENSORFLOW2, params=tensorflow2_toy.STRATEGY | ALONE),
    "paddle": Kind(framework="paddle", train=PADDLE),
}
NEEDS = {"tensorflow2": tensorflow2_toy.needs_tensorflow, "paddle": paddle_toy.needs_paddle}
FRAMEWORKS = [pytest.param(name, marks=NEEDS[name], id=name) for name in KINDS]

HEALTHY = (Job(requality=True), Job(repeat=2), Job(accumulation=2), Job(mode="throughput"))


def broken_jobs(framework: str) -> list[tuple[str, Job]]:
    """(name, job) of every sabotage of one rank that the framework's driver knows, in one mode where it shows."""
    known = [one for one in TABLE if framework in one.frameworks and one.ranks == 1]
    return [(one.name, job_of(one, "throughput" if one.mode == "throughput" else "converge")) for one in known]
