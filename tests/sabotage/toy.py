"""A toy case that the real driver trains, many runs in one process, on a clock that only the toy's own work moves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.artifacts import event_seals, file_digest
from suite.drivers.asked import Asked
from suite.plan import Check, Plan, Quality
from suite.result import Result
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.driver_toy import PARAMS, RUN
from tests.meeting import meeting_ports
from tests.run_folders import tiny_plan, write_lines

ROOT = Path(__file__).resolve().parent.parent.parent

CLOCK = '''class Clock:
    """Time that passes while somebody sleeps, and then only."""

    def __init__(self):
        self.now = 1000.0

    def sleep(self, seconds):
        self.now += seconds

    def read(self):
        return self.now

    def wall(self):
        return 1.7e9 + self.now


CLOCK = Clock()
'''
"""Of a train.py: a clock that only its own work moves."""

TRAIN = (
    """
import os
import sys
import time

import torch

from suite.drivers.pytorch import Task, run

TRUE = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])


"""
    + CLOCK
    + '''

class Plane(Task):
    """Fits four weights to a plane; the held-out points are noisy."""

    part = "held out"

    def build(self):
        return torch.nn.Sequential(torch.nn.Dropout(0.0), torch.nn.Linear(4, 1))

    def prepare_data(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(256, 4, generator=generator)
        self.y = self.x @ TRUE
        self.held = torch.randn(100, 4, generator=generator)
        self.right = self.held @ TRUE + 0.1 * torch.randn(100, 1, generator=generator)

    def evaluate_on_training_data(self):
        self.part, self.held, self.right = "train", self.x[:100], self.y[:100]

    def train_batches(self, epoch, skip=0):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(self.run.seed * 1000 + epoch))
        size = self.params["train_batch_size"]
        for start in range(0, 256, size * self.world_size):
            rows = order[start : start + size * self.world_size][self.rank * size : (self.rank + 1) * size]
            yield {"x": self.x[rows], "y": self.y[rows]}

    def shuffle_labels(self, batch, generator):
        return {"x": batch["x"], "y": batch["y"][torch.randperm(len(batch["y"]), generator=generator)]}

    def loss(self, model, batch):
        CLOCK.sleep(0.03)
        return (model(batch["x"]) - batch["y"]).square().mean()

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 0}

    def evaluate(self, model):
        CLOCK.sleep(0.1)
        mine = slice(self.rank, None, self.world_size)
        for row in range(100)[mine]:
            self.asks(self.part, row)
        return {"mse": (float((model(self.held[mine]) - self.right[mine]).square().sum()), len(self.right[mine]))}


if __name__ == "__main__":
    time.sleep, time.monotonic, time.perf_counter, time.time = CLOCK.sleep, CLOCK.read, CLOCK.read, CLOCK.wall
    for job in sys.argv[1:]:
        os.environ["MASTER_PORT"], os.environ["TRAINMARK_RUN"] = job.split(":", 1)
        try:
            run(Plane)
        except SystemExit:  # of a device that leaves
            pass
'''
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A framework's toy: its train.py, whose interpreter the environment names, and the driver's own parameters."""

    framework: str = "pytorch"
    train: str = TRAIN
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """The interpreter."""
        return os.environ.get(f"TRAINMARK_PYTHON_{self.framework.upper()}", sys.executable)


PYTORCH = Kind()
LEAST = 0.01
"""Samples a second, demanded of the throughput runs: any pace at all."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A plan to train and judge: `sabotage` None is a healthy twin."""

    sabotage: str | None = None
    mode: str = "converge"
    ranks: int = 1
    repeat: int = 1
    accumulation: int = 1
    requality: bool = False
    target: float = 0.02
    """As the ranks are told; the plan's is 0.02."""

    @property
    def name(self) -> str:
        """Of its folder."""
        shape = f"{self.mode}-{self.ranks}-{self.repeat}-{self.accumulation}"
        return f"{self.sabotage or 'healthy'}-{shape}-{'requality' if self.requality else 'alone'}-{self.target:g}"

    @property
    def params(self) -> dict[str, Any]:
        """Of the driver."""
        batch = 16 // self.ranks // self.accumulation
        steps = {"throughput_warmup_steps": 10, "throughput_steps": 60, "train_data": "case:plane"}
        own = {"train_batch_size": batch, "gradient_accumulation_steps": self.accumulation, "lr": 0.2, **steps}
        return PARAMS | own


def asked() -> str | None:
    """The digest of what a whole evaluation of the toy asks."""
    whole = Asked()
    for row in range(100):
        whole.note(("held out", row))
    return whole.told


def plan_of(job: Job) -> Plan:
    """The plan, with the checks that tell."""
    common = [Check(name="ledger", metric="unaccounted_over", op="<=", threshold=0, unit="s", required=True)]
    if job.ranks > 1:
        common.append(Check(name="ranks_in_sync", metric="ranks_in_sync", op="==", threshold=1, required=True))
    if job.mode == "converge":
        common.insert(0, Check(name="quality", metric="mse", op="<=", threshold=0.02, required=True))
    else:
        common.append(Check(name="throughput", metric="throughput_train", op=">=", threshold=LEAST, required=True))
    if job.mode == "throughput" and job.ranks > 1:
        common.append(Check(name="balanced", metric="rank_imbalance", op="<=", threshold=1.05, required=True))
    return tiny_plan(
        id=job.name,
        topology=Topology(nnodes=1, nproc=job.ranks),
        mode=job.mode,
        params=job.params,
        quality=Quality(metric="mse", better="lower", target=0.02, source="the toy", counted=100, asked=asked()),
        checks=tuple(common),
        repeat=job.repeat,
        seeds=tuple(range(11, 11 + job.repeat)),
        sabotage=job.sabotage,
    )


def play(folder: Path, jobs: Sequence[Job], timeout_s: float = 240, kind: Kind = PYTORCH) -> None:
    """Train all `jobs`, of equally many ranks, each in a plan folder below `folder`, by the real driver."""
    ranks = jobs[0].ranks
    assert all(job.ranks == ranks for job in jobs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(kind.train, encoding="utf-8")
    runs = [run for job in jobs for run in _write(folder, job, kind)]
    with meeting_ports(len(runs)) as ports:
        words = [f"{port}:{run}" for port, run in zip(ports, runs)]
        started = [_start(folder, kind.python, rank, ranks, words) for rank in range(ranks)]
        deadline = time.monotonic() + timeout_s
        try:
            for process in started:
                process.wait(max(deadline - time.monotonic(), 1))
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait(10)
    for job in jobs:
        _end(folder / job.name, job)


def judged(folder: Path, job: Job) -> Result:
    """The harness's verdict on what `play` left."""
    return judge_folder(folder / job.name)


def log_of(folder: Path, rank: int = 0) -> str:
    """What a rank's process printed."""
    return (folder / f"rank{rank}.log").read_text(encoding="utf-8")


def _start(folder: Path, python: str, rank: int, ranks: int, words: Sequence[str]) -> subprocess.Popen[bytes]:
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "GROUP_RANK": 0}
    env = {**os.environ, **{name: str(value) for name, value in place.items()}, "MASTER_ADDR": "127.0.0.1"}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (folder / f"rank{rank}.log").open("wb") as log:
        argv = [python, "train.py", *words]
        return subprocess.Popen(argv, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT)


def _write(folder: Path, job: Job, kind: Kind) -> list[Path]:
    """plan.json and every run.json; in the order of training."""
    plan = plan_of(job)
    place = folder / job.name
    place.mkdir()
    plan.write(place / "plan.json")
    paths = [_run_json(place / f"r{n}", job, kind, seed, n=n) for n, seed in enumerate(plan.seeds, 1)]
    if job.requality:
        resume = str(place / "r1" / "checkpoints" / "latest.pt")
        paths.append(
            _run_json(place / "requality" / "r1", job, kind, 11, mode="evaluate", resume=resume, sabotage=None)
        )
    return paths


def _run_json(folder: Path, job: Job, kind: Kind, seed: int, **over: Any) -> Path:
    folder.mkdir(parents=True)
    params = {**job.params, **kind.params}
    spec = {**RUN, "id": job.name, "mode": job.mode, "params": params, "seed": seed, "run_dir": str(folder)}
    spec |= {"run": f"{job.name}-{folder.parent.name}-{folder.name}"}
    spec |= {"topology": {"nnodes": 1, "nproc": job.ranks}, "case_dir": str(folder), "sabotage": job.sabotage}
    spec |= {"quality": {"metric": "mse", "better": "lower", "target": job.target}}
    spec |= {"expect": {"world_size": job.ranks, "precision": "fp32", "device_match": []}}
    spec |= {"checkpoint": {"every_s": 0, "final": job.mode == "converge"}, **over}
    (folder / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    return folder / "run.json"


def _end(place: Path, job: Job) -> None:
    """What agent and controller write once the ranks have left with 0."""
    for run in [*place.glob("r*/run.json"), *place.glob("requality/r*/run.json")]:
        folder = run.parent
        (folder / "exits").mkdir(exist_ok=True)
        for rank in range(job.ranks):
            record = {"rank": rank, "pid": 1, "returncode": 0, "signal": None}
            (folder / "exits" / f"rank{rank}.json").write_text(json.dumps(record), encoding="utf-8")
        ended = {"event": "ended", "by": "itself", "status": "passed", "category": "", "reason": ""}
        write_lines(folder / "harness.jsonl", [ended, {"event": "witness", "events": event_seals(folder)}])
        if folder.parent.name == "requality":
            spec = json.loads(run.read_text(encoding="utf-8"))
            checkpoint = Path(spec["resume"])
            digest = file_digest(checkpoint) if checkpoint.is_file() else ""
            spec["evaluates"] = {"folder": checkpoint.parent.parent.name, "sha256": digest}
            run.write_text(json.dumps(spec), encoding="utf-8")
