"""A toy case for the driver's tests: linear regression, with a run folder to train it in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm_python
from tests.warm_python import Finished

ROOT = Path(__file__).resolve().parent.parent

TRAIN = '''
import gc
import os
import sys
import time

import torch

from suite.drivers.pytorch import Task, run

TRUE = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])


class Line(Task):
    """Fits four weights to a plane with a little noise."""

    def build(self):
        return torch.nn.Sequential(torch.nn.Dropout(self.params["dropout"]), torch.nn.Linear(4, 1))

    def prepare_data(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(256, 4, generator=generator)
        self.y = self.x @ TRUE + 0.01 * torch.randn(256, 1, generator=generator)

    def train_batches(self, epoch, skip=0):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(self.run.seed * 1000 + epoch))
        size, step = self.params["train_batch_size"], self.params["train_batch_size"] * self.world_size
        for index, start in enumerate(range(0, 256, step)):
            if index >= skip:
                rows = order[start : start + step][self.rank * size : (self.rank + 1) * size]
                if self.params["break"] == "nan" and epoch == 2:
                    yield {"x": self.x[rows] * float("nan"), "y": self.y[rows]}
                elif self.params["break"] == "raise" and epoch == 2:
                    raise ValueError("the disk is on fire")
                else:
                    yield {"x": self.x[rows], "y": self.y[rows]}

    def synthetic_batches(self):
        while True:
            yield {"x": torch.randn(self.params["train_batch_size"], 4), "y": torch.zeros(1)}

    def shuffle_labels(self, batch, generator):
        return {"x": batch["x"], "y": batch["y"][torch.randperm(len(batch["y"]), generator=generator)]}

    def loss(self, model, batch):
        if self.params["break"] == "sleep":
            time.sleep(60)
        if self.params["break"] == "say what the collector leaves":
            print("left:", gc.get_freeze_count(), flush=True)
        return (model(batch["x"]) - batch["y"]).square().mean()

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 4 * len(batch["x"])}

    def evaluate(self, model):
        mine = slice(self.rank, None, self.world_size)
        error = (model(self.x[mine]) - self.y[mine]).square().sum()
        return {"mse": (float(error), len(self.y[mine]))}

    def flops_per_sample(self):
        return 24, "counted"


if __name__ == "__main__":
    run(Line)
'''

PARAMS: dict[str, Any] = {
    "train_batch_size": 16,
    "eval_batch_size": 16,
    "gradient_accumulation_steps": 1,
    "precision": "fp32",
    "optimizer": "adamw",
    "lr": 0.05,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_eps": 1e-8,
    "momentum": 0.9,
    "lr_schedule": "constant",
    "lr_min_ratio": 0.0,
    "warmup_steps": 0,
    "warmup_ratio": 0.0,
    "schedule_steps": 0,
    "clip_grad_norm": 0.0,
    "compile": False,
    "max_samples": 1280,
    "eval_every_samples": 256,
    "log_freq": 10,
    "throughput_steps": 20,
    "throughput_warmup_steps": 5,
    "num_workers": 0,
    "threads": 1,
    "dropout": 0.0,
    "break": "",
}

RUN: dict[str, Any] = {
    "schema": 1,
    "run": "toy-run",
    "id": "line-pytorch-cpu-host-1x1",
    "n": 1,
    "attempt": 1,
    "mode": "converge",
    "preset": "mini",
    "params": {},
    "seed": 7,
    "topology": {"nnodes": 1, "nproc": 1},
    "quality": {"metric": "mse", "better": "lower", "target": -1.0},
    "limit_s": None,
    "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "shared": True},
    "expect": {"world_size": 1, "precision": "fp32", "device_match": []},
    "machine": "host",
    "data_dir": None,
    "case_dir": "",
    "extern_dir": None,
    "runtime_dir": None,
    "slots": [],
    "run_dir": "",
    "checkpoint": {"every_s": 0, "final": False},
    "resume": None,
    "heartbeat_s": 5.0,
    "capabilities": {},
    "sabotage": None,
}


def write_run(folder: Path, ranks: int = 1, params: dict[str, Any] | None = None, **over: Any) -> Path:
    """A run folder with the toy's train.py and a run.json; the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    spec = {**RUN, "case_dir": str(folder), "run_dir": str(folder), "topology": {"nnodes": 1, "nproc": ranks}}
    spec["params"] = {**PARAMS, **(params or {})}
    spec["expect"] = {**RUN["expect"], "world_size": ranks, "precision": spec["params"]["precision"]}
    spec.update(over)
    (folder / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    return folder / "run.json"


def environment(run_json: Path, **more: str) -> dict[str, str]:
    """Of a rank without its launcher."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TRAINMARK_RUN": str(run_json), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def train(folder: Path, ranks: int = 1, **over: Any) -> Finished:
    """Train the toy to its end, each rank a fork of a warm Python; the first rank that failed, or one that did not."""
    run_json = write_run(folder, ranks, **over)
    done = warm_python.train(folder / "train.py", run_json, ranks, timeout_s=120)
    return max(done, key=lambda one: one.returncode != 0)


def launch(folder: Path, ranks: int = 1, **over: Any) -> Finished:
    """The same by processes of its own: alone, or by torchrun with its ranks wrapped as the launcher does."""
    run_json = write_run(folder, ranks, **over)
    argv = [sys.executable, "train.py"]
    if ranks > 1:
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        argv += [str(ROOT / "suite" / "drivers" / "rank.py"), "train.py"]
    return subprocess.run(
        argv, cwd=folder, env=environment(run_json), capture_output=True, text=True, timeout=120, check=False
    )


def events(folder: Path, rank: int = 0, name: str | None = None) -> list[dict[str, Any]]:
    """The events of a rank, or those of one name."""
    lines = (folder / "events" / f"rank{rank}.jsonl").read_text(encoding="utf-8").splitlines()
    every = [json.loads(line, parse_constant=_refuse) for line in lines]
    return [event for event in every if name in (None, event["event"])]


def losses(folder: Path, rank: int = 0) -> list[float]:
    """The loss of every step."""
    return [loss for window in events(folder, rank, "steps") for loss in window["loss"]]


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")
