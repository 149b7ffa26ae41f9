"""Runs of the PaddlePaddle driver in the interpreter that the environment names, by the launcher of ranks."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.launched_toy import LaunchedToy

VARIABLE = "TRAINMARK_PYTHON_PADDLE"
INSTALL = (
    "python3 -m venv venvs/paddle && venvs/paddle/bin/pip install -e '.[paddle]'"
    f" && export {VARIABLE}=venvs/paddle/bin/python"
)

needs_paddle = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"no PaddlePaddle here; make it: {INSTALL}")

LINE = '''
import numpy as np
import paddle

from suite.drivers.paddle import Task, run

TRUE = np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)


class Line(Task):
    """Fits four weights to a plane with a little noise."""

    def build(self):
        layers = [paddle.nn.Dropout(self.params["dropout"]), paddle.nn.Linear(4, 1)]
        if self.params["norm"]:
            layers.insert(0, paddle.nn.BatchNorm1D(4))
        return paddle.nn.Sequential(*layers)

    def prepare_data(self):
        random = np.random.default_rng(5)
        self.x = random.normal(size=(256, 4)).astype(np.float32)
        self.y = self.x @ TRUE + np.float32(0.01) * random.normal(size=(256, 1)).astype(np.float32)

    def train_batches(self, epoch, skip=0):
        order = np.random.default_rng([self.run.seed, epoch]).permutation(256)
        size = self.params["train_batch_size"]
        step = size * self.world_size
        for index, start in enumerate(range(0, 256, step)):
            if index >= skip:
                rows = order[start : start + step][self.rank * size : (self.rank + 1) * size]
                scale = np.float32("nan" if self.params["break"] == "nan" and epoch == 2 else 1)
                if self.params["break"] == "raise" and epoch == 2 and self.rank == self.world_size - 1:
                    raise ValueError("the disk is on fire")
                yield {"x": scale * self.x[rows], "y": self.y[rows]}

    def synthetic_batches(self):
        random = np.random.default_rng(self.rank)
        while True:
            x = random.normal(size=(self.params["train_batch_size"], 4)).astype(np.float32)
            yield {"x": x, "y": np.zeros((len(x), 1), np.float32)}

    def shuffle_labels(self, batch, generator):
        return {**batch, "y": generator.permutation(batch["y"])}

    def loss(self, model, batch):
        return (model(batch["x"]) - batch["y"]).square().mean()

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 4 * len(batch["x"])}

    def evaluate(self, model):
        mine = slice(self.rank, None, self.world_size)
        error = (model(self.device.to(self.x[mine])).numpy() - self.y[mine]) ** 2
        return {"mse": (float(error.sum()), len(error))}

    def flops_per_sample(self):
        return 24, "counted"


if __name__ == "__main__":
    run(Line)
'''

PARAMS: dict[str, Any] = {
    "train_batch_size": 16, "gradient_accumulation_steps": 1, "precision": "fp32", "optimizer": "adamw", "lr": 0.05,
    "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8, "momentum": 0.9,
    "lr_schedule": "constant", "lr_min_ratio": 0.0, "warmup_steps": 0, "warmup_ratio": 0.0, "schedule_steps": 0,
    "clip_grad_norm": 0.0, "max_samples": 1280, "eval_every_samples": 256, "log_freq": 10, "throughput_steps": 20,
    "throughput_warmup_steps": 5, "num_workers": 0, "threads": 1, "dropout": 0.0, "norm": False, "break": "",
}  # fmt: skip

TOY = LaunchedToy("paddle", LINE, {"OMP_NUM_THREADS": "1"})
CASE_DIR, mini, drive = TOY.case_dir, TOY.case_params, TOY.drive
