"""Runs of the PaddlePaddle driver in the interpreter that the environment names, by the launcher of ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CASE_DIR = ROOT / "suite/cases/mobilenetv2/paddle"
VENDOR_DIR = ROOT / "suite/vendors/cpu/mobilenetv2/paddle"
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


def mini(ranks: int, **changes: Any) -> dict[str, Any]:
    """The parameters of mobilenetv2/paddle's mini as the vendor cpu plans them."""
    case = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    merged: dict[str, Any] = case["params"] | case["preset"]["mini"]["params"]
    for name in ("default", *(["hostx1x2"] if ranks == 2 else [])):
        config = tomllib.loads((VENDOR_DIR / f"config_{name}.toml").read_text(encoding="utf-8"))
        merged |= config["preset"]["mini"]
    return merged | changes


def write_run(folder: Path, values: dict[str, Any], ranks: int, case_dir: Path, **changes: Any) -> Path:
    """run.json of a run on this CPU."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    spec = {
        "schema": 1, "run": "toy-run", "id": f"line-paddle-cpu-host-1x{ranks}", "n": 1, "attempt": 1,
        "mode": "converge", "preset": "mini", "params": values, "seed": 1, "topology": {"nnodes": 1, "nproc": ranks},
        "quality": {"metric": "mse", "better": "lower", "target": -1.0}, "limit_s": None,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": ranks, "precision": values["precision"], "device_match": []},
        "machine": "host", "data_dir": str(folder), "case_dir": str(case_dir), "extern_dir": None,
        "runtime_dir": None, "slots": [], "run_dir": str(folder), "checkpoint": {"every_s": 0, "final": False},
        "resume": None, "heartbeat_s": 5, "capabilities": {}, "sabotage": None,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(spec | changes), encoding="utf-8")
    return path


def drive(folder: Path, values: dict[str, Any], ranks: int = 1, case: Path | None = None, **changes: Any) -> int:
    """The exit status of the launcher after a run to its end; `case` is a folder with a train.py, or the toy."""
    folder.mkdir(parents=True, exist_ok=True)
    if case is None:
        (folder / "train.py").write_text(LINE, encoding="utf-8")
    run_json = write_run(folder, values, ranks, case or folder, **changes)
    environment = {**os.environ, "TRAINMARK_RUN": str(run_json), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    argv = [os.environ[VARIABLE], str(ROOT / "suite/drivers/ranks.py"), f"--nproc-per-node={ranks}"]
    argv += [f"--master-port={free_port()}", str(ROOT / "suite/drivers/rank.py"), str((case or folder) / "train.py")]
    return subprocess.run(argv, env=environment, timeout=240, check=False).returncode


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def events(folder: Path, rank: int = 0, name: str = "") -> list[dict[str, Any]]:
    """The events of a rank, of one name where it is given."""
    lines = (folder / f"events/rank{rank}.jsonl").read_text(encoding="ascii").splitlines()
    return [event for event in map(json.loads, lines) if name in ("", event["event"])]


def losses(folder: Path, rank: int = 0) -> list[float]:
    """The loss of every step of a rank."""
    return [loss for window in events(folder, rank, "steps") for loss in window["loss"]]


def stop(folder: Path, rank: int = 0) -> tuple[str, str]:
    """(status, reason) of a rank's last line."""
    last = events(folder, rank)[-1]
    return last["status"], last["reason"]


def log(folder: Path, rank: int = 0) -> str:
    """The end of what a rank wrote, for a failed assertion."""
    return (folder / f"logs/rank{rank}.log").read_text(encoding="utf-8", errors="replace")[-3000:]
