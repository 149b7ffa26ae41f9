"""`--resume RUN` goes on under the plan that the run was begun with, or says what is another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.file_lock import is_locked, locked
from fixtures.harness_log import HarnessLog
from fixtures.options import Options
from fixtures.resume import interrupted, narrowed, resumed
from fixtures.site import Checkpoint, Lease, Site
from suite.drivers.events import RunProblem, find_place
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.plan import Plan
from tests.launch_toy import TRAIN, Watcher, toy_plan, trainer, until


def left_behind(folder: Path, *, checkpoint: bool = True, **spec: Any) -> tuple[Plan, Path]:
    """A plan, and what an interrupted run of it left."""
    plan = toy_plan(folder, topology="1x1", plan_digest="d1", params={"lr": 0.1})
    run = folder / "session" / plan.id / "r1"
    (run / "checkpoints").mkdir(parents=True)
    plan.write(run.parent / "plan.json")
    (run / "run.json").write_text(json.dumps({"seed": 17, "resume": None, **spec}))
    if checkpoint:
        (run / "checkpoints" / "latest.pt").write_text("state")
    return plan, run


def test_the_run_or_its_plan_may_be_named(tmp_path: Path) -> None:
    plan, run = left_behind(tmp_path)
    for path in (run, run.parent):
        found = interrupted(path)
        assert (found.plan, found.seed, found.checkpoint) == (plan, 17, run / "checkpoints" / "latest.pt")
    options = narrowed(Options(resume=run))
    assert (options.models, options.topologies, options.vendor) == ((plan.model,), ("1x1",), plan.vendor)
    (again,) = resumed(options, (plan.model_copy(update={"seeds": (1, 2), "repeat": 2}),))
    assert (again.seeds, again.repeat) == ((17,), 1)


def test_a_run_that_fell_before_its_first_checkpoint_begins_where_it_began(tmp_path: Path) -> None:
    first = tmp_path / "earlier.pt"
    first.write_text("state")
    _, run = left_behind(tmp_path, checkpoint=False, resume=str(first))
    assert interrupted(run).checkpoint == first


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("checkpoint", "it left no checkpoint; set [checkpoint] every_s"),
        ("plan", "no plan.json of this version"),
        ("done", "came to its end"),
        ("digest", "lr 0.1 -> 0.2"),
        ("gone", "cannot be planned any more"),
        ("topology", "--topology 1x2: the run to resume has 1x1"),
        ("repeat", "--repeat 3"),
        ("running", "that run still goes on; wait for its end, or end it"),
    ],
)
def test_whatever_is_not_the_same_is_refused(tmp_path: Path, spoil: str, words: str) -> None:
    plan, run = left_behind(tmp_path, checkpoint=spoil != "checkpoint")
    options, plans = Options(resume=run), (plan,)
    if spoil == "plan":
        (run.parent / "plan.json").write_text("{}")
    elif spoil == "done":
        HarnessLog(run / "harness.jsonl").ended(Outcome(status="passed"), "itself")
    elif spoil == "digest":
        plans = (plan.model_copy(update={"plan_digest": "d2", "params": {"lr": 0.2}}),)
    elif spoil == "gone":
        plans = ()
    elif spoil == "topology":
        options = Options(resume=run, topologies=("1x2",))
    elif spoil == "repeat":
        options = Options(resume=run, repeat=3)
    with pytest.raises(UsageProblem) as problem, locked(run.parent / "plan.json" if spoil == "running" else tmp_path):
        resumed(narrowed(options), plans)
    assert words in str(problem.value)


def test_the_first_run_gets_the_checkpoint_and_the_site_sets_the_period(tmp_path: Path) -> None:
    checkpoint = tmp_path / "old.pt"
    checkpoint.write_text("state")
    site = Site(lease=Lease(dir=str(tmp_path / "leases")), checkpoint=Checkpoint(every_s=90))
    train = TRAIN + "assert open(run['resume']).read() == 'state'\nsteps(); stop()\n"
    runs = trainer(tmp_path, site=site, resume=checkpoint)(toy_plan(tmp_path, train, topology="1x1"))
    spec = json.loads((runs.folder / "r1" / "run.json").read_text())
    assert (spec["resume"], spec["checkpoint"]["every_s"]) == (str(checkpoint), 90.0)


def test_nobody_resumes_a_run_that_goes_on(tmp_path: Path) -> None:
    """Whoever runs it, and wherever, holds the lock until it has ended."""
    seen: list[bool] = []
    watcher = Watcher(lambda rank, event: seen.append(is_locked(tmp_path / "session" / "toy" / "plan.json")))
    runs = trainer(tmp_path, watcher)(toy_plan(tmp_path, topology="1x1", id="toy"))
    assert seen and all(seen)
    assert not is_locked(runs.folder / "plan.json")


def test_without_a_resume_nothing_is_changed(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path)
    assert narrowed(Options()) == Options()
    assert resumed(Options(), (plan,)) == (plan,)


def test_a_signal_has_the_driver_save_at_a_step_boundary_and_go_on_exactly(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.driver_toy import environment, events, losses, train, write_run

    params = {"params": {"dropout": 0.2, "max_samples": 12800}}
    run_json = write_run(tmp_path / "first", **params)
    _slow_down(tmp_path / "first" / "train.py")  # or on a busy host it is at its end before the signal arrives
    with subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path / "first", env=environment(run_json)) as rank:
        until(
            lambda: (tmp_path / "first" / "events" / "rank0.jsonl").exists() and _told(tmp_path / "first", "steps"), 60
        )
        rank.send_signal(signal.SIGUSR2)
        until(lambda: _told(tmp_path / "first", "checkpoint_stop"), 60)
        rank.send_signal(signal.SIGKILL)
    saved = events(tmp_path / "first", name="checkpoint_stop")[0]["step"]
    resume = str(tmp_path / "first" / "checkpoints" / "latest.pt")
    assert train(tmp_path / "second", **params, resume=resume).returncode == 0
    assert train(tmp_path / "whole", **params).returncode == 0
    start = events(tmp_path / "second", name="run_start")[0]
    assert start["resumed_from_step"] == saved and start["active_s"] > 0
    whole = losses(tmp_path / "whole")
    assert losses(tmp_path / "second") == whole[saved:]


def _slow_down(train: Path) -> None:
    """The same training at twenty steps a second: 40 s, of which the test sees the first few."""
    text = train.read_text()
    held = text.replace('if self.params["break"] == "sleep":\n            time.sleep(60)', "time.sleep(0.05)")
    assert held != text
    train.write_text(held)


def _told(folder: Path, event: str) -> bool:
    return f'"{event}"' in (folder / "events" / "rank0.jsonl").read_text()


OMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
}
PMI = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_NODEID": "1",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}


@pytest.mark.parametrize("told", [OMPI, PMI, SLURM], ids=["OMPI", "PMI", "SLURM"])
def test_a_rank_takes_its_place_from_whoever_started_it(told: dict[str, str]) -> None:
    place = find_place(told)
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size, place.node_rank) == (5, 8, 1, 4, 1)
    assert find_place({**told, **TORCHRUN})[:3] == (1, 2, 1)  # torchrun inside such a job knows better
    with pytest.raises(RunProblem, match="is not below"):
        find_place({**told, next(iter(told)): "9"})


@pytest.mark.parametrize(
    "told",
    [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly]) for name in ("OMPI_COMM_WORLD", "PMI")]
    + ["SLURM"],
)
def test_two_ranks_started_without_torchrun_train_together(tmp_path: Path, told: str) -> None:
    """As mpirun or srun start them: no RANK, only their own variables and the address of rank 0."""
    pytest.importorskip("torch")
    from fixtures.ports import leased_port
    from tests.driver_toy import ROOT, environment, events, write_run

    names = {"OMPI_COMM_WORLD": ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"), "PMI": ("RANK", "SIZE", "", ""),
             "SLURM": ("PROCID", "NTASKS", "LOCALID", "NTASKS_PER_NODE")}[told]  # fmt: skip
    run_json = write_run(tmp_path, 2, params={"max_samples": 256})
    with leased_port(tmp_path / "ports") as port:
        ranks = []
        for number in (0, 1):
            values = (number, 2, number, 2)
            own = {f"{told}_{name}": str(value) for name, value in zip(names, values) if name}
            env = environment(run_json, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **own)
            argv = [sys.executable, str(ROOT / "suite" / "drivers" / "rank.py"), "train.py"]
            ranks.append(subprocess.Popen(argv, cwd=tmp_path, env=env))
        try:
            assert [rank.wait(120) for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                rank.kill()
    for rank in (0, 1):
        header = events(tmp_path, rank)[0]
        assert (header["rank"], header["world_size"], header["local_rank"]) == (rank, 2, rank)
        assert events(tmp_path, rank, "checksum")[0]["equal"] is True
        assert json.loads((tmp_path / "exits" / f"rank{rank}.json").read_text())["returncode"] == 0
    assert os.environ.get("RANK") is None
