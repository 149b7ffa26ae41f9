"""Batches from processes: the same stream as without them, and nothing that outlives its rank."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.driver_toy import environment, events, write_run

torch = pytest.importorskip("torch")

from suite.drivers.events import RunProblem  # noqa: E402
from suite.drivers.pytorch import batches  # noqa: E402
from suite.drivers.pytorch.task import Task  # noqa: E402
from suite.drivers.pytorch.workers import Workers, loader  # noqa: E402

BUILDER = '''
"""What the processes import."""

import os
import signal
import sys
import time

import numpy as np

from suite.drivers.events import RunProblem


def meet(folder, place, size, limit_s):
    """Return once the other jobs of this group of `size` are being built too."""
    open(os.path.join(folder, str(place)), "w").close()
    first, deadline = place // size * size, time.monotonic() + limit_s
    while not all(os.path.exists(os.path.join(folder, str(first + n))) for n in range(size)):
        if time.monotonic() > deadline:
            raise RunProblem(f"job {place} is built alone")
        time.sleep(0.01)


class Noise:
    """Rows of numbers that depend on the job alone."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, job):
        epoch, place, what = job
        print("a library may print")
        if what == "raise":
            raise ValueError("the disk is on fire")
        if what == "refuse":
            raise RunProblem("clip.avi cannot be decoded: fetch it again")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleep":
            time.sleep(300)
        if what.startswith("meet"):
            _, folder, size, limit_s = what.split()
            meet(folder, place, int(size), float(limit_s))
        chance = np.random.default_rng((epoch, place))
        x = chance.standard_normal((self.rows, 4), dtype=np.float32)
        return {"x": x, "y": x.sum(1, keepdims=True), "from": (np.array([os.getpid(), "torch" in sys.modules]),)}
'''

TASK = '''
import torch
from rows import Noise

from suite.drivers.pytorch import Task, run


class Line(Task):
    """Fits four weights to sums of four numbers."""

    def build(self):
        return torch.nn.Sequential(torch.nn.Dropout(self.params["dropout"]), torch.nn.Linear(4, 1))

    def prepare_data(self):
        pass

    def batch_builder(self):
        return Noise(self.params["train_batch_size"])

    def batch_jobs(self, epoch, skip=0):
        for place in range(skip, 16):
            yield epoch, place * self.world_size + self.rank, self.params["break"] if epoch == 2 else ""

    def loss(self, model, batch):
        return (model(batch["x"]) - batch["y"]).square().mean()

    def count(self, batch):
        return {"samples": len(batch["x"]), "tokens": 0}

    def evaluate(self, model):
        return {"mse": (1.0, 1)}


if __name__ == "__main__":
    run(Line)
'''

PROCESSES = {"loader": "process", "num_workers": 2, "prefetch_factor": 2}


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the builder, as a case's own."""
    (tmp_path / "rows.py").write_text(BUILDER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import rows

    yield rows
    del sys.modules["rows"]


class Jobs(Task):
    """Sixteen jobs an epoch; `what` of one of them."""

    def __init__(self, make: Any, what: str = "", workers: int = 3, size: int = 5, **more: Any) -> None:
        params = {"num_workers": workers, "prefetch_factor": 2, "loader": "process", **more}
        super().__init__(SimpleNamespace(params=params, seed=1), None, {}, 0, 1)
        self.make, self.what, self.size = make, what, size

    def batch_builder(self) -> Any:
        return self.make(self.size)

    def batch_jobs(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        for place in range(skip, 16):
            yield epoch, place, self.what if place == 7 else ""

    def count(self, batch: Any) -> dict[str, int]:
        return {"samples": len(batch["x"]), "tokens": 0}


def taken(task: Any, count: int, epoch: int = 1, skip: int = 0) -> list[batches.Micro]:
    workers = Workers(task, epoch, skip)
    try:
        return [next(workers) for _ in range(count)]
    finally:
        workers.close()


@pytest.mark.parametrize("count", [1, 3])
def test_the_stream_is_that_of_a_single_process(builder: Any, count: int) -> None:
    task = Jobs(builder.Noise, workers=count)
    stream = batches.epochs(task, 1, 5)
    expected = [next(stream) for _ in range(30)]
    found = taken(task, 30, 1, 5)
    assert [micro[3:] for micro in found] == [micro[3:] for micro in expected]
    assert all(torch.equal(micro.batch["x"], other.batch["x"]) for micro, other in zip(found, expected))
    assert [(m.epoch, m.index) for m in found if m.last] == [(1, 15), (2, 15)]
    pids = {int(micro.batch["from"][0][0]) for micro in found}
    assert len(pids) == count and os.getpid() not in pids
    assert not any(psutil.pid_exists(pid) for pid in pids), "close waits for them"


def test_the_processes_need_no_framework_and_batches_may_be_written_to(builder: Any) -> None:
    (micro,) = taken(Jobs(builder.Noise), 1)
    assert micro.batch["from"][0][1] == 0
    micro.batch["x"].zero_()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("raise", "ValueError in the loader's process 1: the disk is on fire"),
        ("refuse", "^clip.avi cannot be decoded: fetch it again"),
        ("die", r"process 1 \(pid \d+\) was killed by signal 9: look for what ended it"),
    ],
)
def test_what_goes_wrong_in_a_process_is_said_where_it_is_due(builder: Any, what: str, sentence: str) -> None:
    workers = Workers(Jobs(builder.Noise, what), 1, 0)
    try:
        assert [next(workers).index for _ in range(7)] == list(range(7))
        with pytest.raises(RunProblem, match=sentence):
            next(workers)
    finally:
        workers.close()


def test_what_cannot_go_to_a_process_is_refused(builder: Any) -> None:
    with pytest.raises(RunProblem, match=r"cannot be pickled .*: keep paths and numbers in it"):
        Workers(Jobs(lambda size: builder.Noise(lambda: size)), 1, 0)
    with pytest.raises(RunProblem, match=r"a job of batch_jobs has 4.* bytes, at most 32768 go"):
        taken(Jobs(builder.Noise, "x" * 40000), 16)
    with pytest.raises(RunProblem, match="has no batch_jobs, which loader = 'process' needs: set loader = 'thread'"):
        next(Task.batch_jobs(Jobs(builder.Noise), 1))
    with pytest.raises(RunProblem, match="loader = 'fork' is not one of thread, process"):
        loader({"loader": "fork", "num_workers": 2})


def test_without_workers_there_is_no_process() -> None:
    assert loader({"num_workers": 4}) == "thread"
    assert loader({"num_workers": 0, "loader": "process"}) == "thread"
    assert loader({"num_workers": 1, "loader": "process"}) == "process"


class Meeting(Jobs):
    """Every job waits for the others of its group."""

    def batch_jobs(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        for place in range(skip, 16):
            yield epoch, place, self.what


def test_as_many_batches_are_built_at_once_as_there_are_processes(builder: Any, tmp_path: Path) -> None:
    """Three that wait for each other are built by three processes, and by two they never are: the training waits."""
    for name in ("three", "two"):
        (tmp_path / name).mkdir()
    assert len(taken(Meeting(builder.Noise, f"meet {tmp_path / 'three'} 3 60", workers=3), 9)) == 9
    with pytest.raises(RunProblem, match="is built alone"):
        taken(Meeting(builder.Noise, f"meet {tmp_path / 'two'} 3 1", workers=2), 3)


# Through the driver


def start(folder: Path, **over: Any) -> subprocess.Popen[bytes]:
    """A rank of the toy, running, wrapped as the launcher does it."""
    run_json = write_run(folder, **over)
    (folder / "train.py").write_text(TASK, encoding="utf-8")
    (folder / "rows.py").write_text(BUILDER, encoding="utf-8")
    argv = [sys.executable, str(Path(__file__).resolve().parent.parent / "suite/drivers/rank.py"), "train.py"]
    return subprocess.Popen(argv, cwd=folder, env=environment(run_json))


def children(pid: int) -> list[psutil.Process]:
    """The loader's processes of a rank, below its wrapper."""
    found = psutil.Process(pid).children(recursive=True)
    return [process for process in found if any("batch_worker.py" in word for word in process.cmdline())]


def test_no_process_outlives_its_rank(tmp_path: Path) -> None:
    """Also while it is busy, and where the rank is killed by what it cannot answer."""
    process = start(tmp_path, params=PROCESSES | {"break": "sleep"})
    try:
        deadline = time.monotonic() + 60
        while len(loaders := children(process.pid)) < 2 or not (tmp_path / "events/rank0.jsonl").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        while not events(tmp_path, name="steps"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (rank,) = psutil.Process(process.pid).children()
        rank.kill()
        process.wait(timeout=30)
        gone, alive = psutil.wait_procs(loaders, timeout=10)
        assert not alive and len(gone) == 2
    finally:
        process.kill()
        process.wait(timeout=10)
