"""Gates over real runs of the suite: a training whose pace is stated, on a host whose deviations are added to it."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from suite.errors import UsageProblem
from suite.result import CheckResult

ROOT = Path(__file__).resolve().parent.parent
TRUTH = 0.87
LIMIT_S = 900.0

CASE = """
title = "A stated pace"
measurement_version = 1
estimate_s = 10
samples_unit = "sample"
mutable = ["threads"]
[quality]
metric = "mse"
better = "lower"
[target]
value = 1.0
source = "nothing is learnt here"
[limit]
time_to_train_s = 600
source = "patience"
[params]
train_batch_size = 8
eval_batch_size = 8
gradient_accumulation_steps = 1
precision = "fp32"
optimizer = "sgd"
lr = 0.0
weight_decay = 0.0
momentum = 0.0
lr_schedule = "constant"
lr_min_ratio = 0.0
warmup_steps = 0
warmup_ratio = 0.0
schedule_steps = 0
clip_grad_norm = 0.0
compile = false
max_samples = 8000
eval_every_samples = 8000
log_freq = 10
throughput_steps = 60
throughput_warmup_steps = 5
num_workers = 0
threads = 1
step_s = 0.03
noise = 0.01
drift = 0.02
drift_period_s = 90.0
efficiency = {truth}
[preset.mini]
[preset.mini.params]
"""

TRAIN = '''
"""Trains nothing, at a stated pace: the deviations of a noisy host are drawn, so that the truth is known."""
import math
import random
import time

import torch

from suite.drivers.pytorch import Task, run


class Paced(Task):
    due = None

    def build(self):
        return torch.nn.Linear(4, 1)

    def stated_pace(self):
        params = self.params
        # Equal on all ranks of a run, and another in every run; the drift is the hour's, so neighbours share it.
        own = random.Random(self.run.run).gauss(0, params["noise"])
        shared = params["drift"] * math.sin(2 * math.pi * time.time() / params["drift_period_s"])
        share = params["efficiency"] if self.world_size > 1 else 1.0
        return params["step_s"] / share * math.exp(own + shared)

    def synthetic_batches(self):
        while True:
            yield {"x": torch.randn(self.params["train_batch_size"], 4)}

    def loss(self, model, batch):
        now = time.perf_counter()
        # What the host loses on one step is made up for at the next: the pace is that of the clock.
        if self.due is None:
            self.pace, self.due = self.stated_pace(), now
        self.due += self.pace
        time.sleep(max(0.0, self.due - now))
        return model(batch["x"]).square().mean()

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 0}

    def evaluate(self, model):
        return {"mse": (1.0, 1)}


if __name__ == "__main__":
    run(Paced)
'''

TEST = '''
def test_paced(plan, train, judge):
    """The speedup is the one that was stated."""
    judge(train(plan))
'''


def checkout(folder: Path, *, vendor: str, threshold: float) -> Path:
    """A copy of the suite whose one case has the stated pace, with a speedup threshold for that vendor."""
    ignored = shutil.ignore_patterns("__pycache__", "results", ".*", "cases")
    for name in ("suite", "fixtures", "reports"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(ROOT / name, folder / name)
    for path in (folder / "suite/vendors").glob("*/*/*/config_default.toml"):
        shutil.rmtree(path.parent.parent, ignore_errors=True)  # of cases that are not here
    config = f'[preset.mini.threshold.speedup]\nvalue = {threshold}\nsource = "stated"\n'
    files = {
        "suite/cases/paced/pytorch/case.toml": CASE.format(truth=TRUTH),
        "suite/cases/paced/pytorch/train.py": TRAIN,
        "suite/cases/paced/pytorch/test_paced.py": TEST,
        f"suite/vendors/{vendor}/paced/pytorch/config_default.toml": config,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def real_gate(root: Path, session: Path, *, vendor: str, topology: str, repeat: int, seed: int) -> CheckResult:
    """One gate of the suite in `root`. Raises UsageProblem where the session judged no speedup."""
    argv = [sys.executable, "-m", "pytest", "suite", "-q", "-p", "no:cacheprovider", "--session", str(session)]
    argv += ["--vendor", vendor, "--topology", topology, "--preset", "mini", "--mode", "throughput"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*argv, "--repeat", str(repeat), "--seed", str(seed)],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    for path in session.glob(f"*-{topology}/result.json"):
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for check in result["checks"]:
            if check["name"] == "speedup" and (check["baseline"] or {}).get("low") is not None:
                return CheckResult.model_validate(check)
        outcome = result["outcome"]
        raise UsageProblem(f"{session}: no interval: {outcome['category']}: {outcome['reason']}")
    raise UsageProblem(f"{session}: no result; pytest left with {done.returncode}: {done.stdout[-500:]}")


def true_speedup(topology: str) -> float:
    """What the stated pace comes to on that many devices, over one."""
    return TRUTH * math.prod(int(part) for part in topology.split("x"))
