"""Runs that hang for real: what is found before they are ended, which attempts are made again, and what is left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.attempt import MOST_ATTEMPTS, may_retry
from fixtures.node import preflight
from fixtures.triage import NAME, Triage
from suite.measure import measure
from suite.outcome import CATEGORIES, RETRIED, Outcome
from suite.plan import Deadlines
from tests.launch_toy import TRAIN, tagged_with, toy_plan, trainer, until
from tests.run_folders import read_lines
from tests.test_launch_training import ENDLESS, nothing_left, outcome_of

COLLECTIVE = """
import json, os, pathlib, signal, sys, time
import torch, torch.distributed as dist
from suite.drivers.events import EventWriter
from suite.drivers.pytorch import flight
from suite.drivers.pytorch.pulse import Pulse
run = json.load(open(os.environ["TRAINMARK_RUN"]))
rank = int(os.environ["RANK"])
writer = EventWriter(os.path.join(run["run_dir"], "events", f"rank{rank}.jsonl"))
writer.write("header", schema=1, run=run["run"], rank=rank, world_size=2, pid=os.getpid(), t_wall=time.time(),
             t_mono=time.monotonic(), host="here")
flight.switch_on(run["run_dir"])
pulse = Pulse(writer, 0.2, lambda: (2, 16), on_ask=lambda: flight.dump(run["run_dir"], rank))
pulse.phase = "train"
dist.init_process_group("gloo", init_method="file://" + os.path.join(run["run_dir"], "meet"), rank=rank, world_size=2)
tensor = torch.ones(4)
dist.all_reduce(tensor)
if rank == 0: writer.write("run_start")
writer.write("steps", first=1, count=2, step_s=[0.1, 0.1], data_s=[0.0, 0.0], samples=16, loss=[1.0, 1.0], window_s=0.2)
if rank == 1:
    def dream():
        time.sleep(60)
    dream()
dist.all_reduce(tensor)
"""


def triage_of(folder: Path, run: str = "r1") -> Triage:
    return Triage.read(folder / run / NAME)


def test_ranks_that_hang_in_a_collective_are_told_from_the_one_that_did_not_come(tmp_path: Path) -> None:
    limits = Deadlines(total_s=120, launch_s=90, first_step_s=90, no_progress_s=2)
    runs = trainer(tmp_path)(toy_plan(tmp_path, COLLECTIVE, deadlines=limits))
    outcome, found = outcome_of(runs.folder), triage_of(runs.folder)
    assert (outcome.category, outcome.rank) == ("hang", 1)
    assert outcome.reason.endswith("rank 1 has not joined gloo:all_reduce number 2 of group 0, in which rank 0 waits")
    assert any("in dream" in line for line in outcome.log_tail), "the stack of the rank that is waited for"
    assert found.last_collective is not None
    assert (found.last_collective.missing, found.slowest) == ((1,), 1)
    waiting = found.ranks[0]
    assert (waiting.state, waiting.step, waiting.phase, waiting.host) == ("running", 2, "train", "here")
    assert any("all_reduce" in line for line in waiting.stack)
    told = measure(runs.plan, runs.folder / "r1").environment["triage"]
    assert isinstance(told, dict)
    assert (told["slowest"], told["ranks"][0]["step"]) == (1, 2)
    assert "stack" not in told["ranks"][0]
    assert nothing_left()


def test_a_stopped_rank_is_named(tmp_path: Path) -> None:
    stop = "steps()\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)\n"
    limits = Deadlines(total_s=60, no_progress_s=1)
    runs = trainer(tmp_path)(toy_plan(tmp_path, TRAIN + stop, deadlines=limits))
    outcome = outcome_of(runs.folder)
    assert (outcome.category, outcome.rank) == ("hang", 1)
    assert outcome.reason.endswith("rank 1 is stopped")
    assert [standing.state for standing in triage_of(runs.folder).ranks] == ["running", "stopped"]
    assert nothing_left()


@pytest.mark.parametrize(
    ("train", "limits", "category", "words"),
    [
        ("import time; time.sleep(60)\n", {"launch_s": 1}, "timeout", "ranks 0, 1 did not start within 1 s"),
        (TRAIN + "time.sleep(60)\n", {"first_step_s": 1}, "timeout", "no step was done 1 s after the start"),
        (ENDLESS, {"no_progress_s": 1}, "hang", "no rank made progress for 1 s"),
        (TRAIN + "steps(); stop(); time.sleep(60)\n", {"teardown_s": 1}, "hang", "wrote run_stop and did not leave"),
        (ENDLESS, {"total_s": 1}, "timeout", "the run was not over after 1 s"),
    ],
)
def test_every_budget_ends_its_own_wait_and_leaves_a_triage(
    tmp_path: Path, train: str, limits: dict[str, float], category: str, words: str
) -> None:
    plan = toy_plan(tmp_path, train, deadlines=Deadlines(**({"total_s": 60} | limits)))
    runs = trainer(tmp_path)(plan)
    outcome, found = outcome_of(runs.folder), triage_of(runs.folder)
    assert (outcome.status, outcome.category) == ("error", category)
    assert words in outcome.reason
    assert f"deadline {next(iter(limits))}" in outcome.reason
    assert found.reason.startswith(words) or words in found.reason
    assert found.absent == ((0, 1) if "launch_s" in limits else ())
    assert nothing_left()


def test_a_node_that_cannot_be_provided_has_a_budget_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fixtures import execution

    real = execution.preflight_spec

    def hanging(*args: Any, **keys: Any) -> Any:
        # A pipe that nobody writes to: reading it hangs as on a file system that is gone.
        pipe = tmp_path / "pipe"
        if not pipe.exists():
            os.mkfifo(pipe)
        return real(*args, **keys).model_copy(update={"data": (str(pipe),), "limit_s": 30.0})

    monkeypatch.setattr(execution, "preflight_spec", hanging)
    plan = toy_plan(tmp_path, topology="1x1", deadlines=Deadlines(total_s=60, provision_s=1))
    runs = trainer(tmp_path)(plan)
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "had not started its ranks after 1 s (deadline provision_s)" in outcome.reason
    assert (runs.folder / "r1.2").is_dir(), "provisioning is tried again"
    assert nothing_left()


@pytest.mark.parametrize("category", sorted(CATEGORIES["error"]))
def test_only_what_says_nothing_about_the_chip_is_tried_again(tmp_path: Path, category: str) -> None:
    """By the vendor's own patterns a rank's text makes any category: the decision is then the attempt's alone."""
    assert may_retry(Outcome(status="error", category=category)) == (category in RETRIED)
    assert not may_retry(Outcome(status="failed", category="quality"))
    assert not may_retry(Outcome(status="error", category="environment", rank=0)), "a rank would see it again"


@pytest.mark.parametrize("category", ["lost_node", "preempted", "provision", "crash"])
def test_every_attempt_is_kept_under_one_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, category: str) -> None:
    from fixtures import cause

    monkeypatch.setattr(cause, "GENERIC_FAULTS", ((r"the scripted fault", category),))
    records: list[dict[str, Any]] = []
    train = TRAIN + "if run['attempt'] == 1:\n    print('the scripted fault', flush=True); sys.exit(1)\nstop()\n"
    runs = trainer(tmp_path, records=records)(toy_plan(tmp_path, train, topology="1x1"))
    kept = sorted(path.name for path in runs.folder.glob("r1*"))
    told = [
        (record["n"], record["attempt"], record["outcome"]["status"])
        for record in records
        if record["kind"] == "attempt"
    ]
    again = category in RETRIED
    assert kept == (["r1", "r1.2"] if again else ["r1"])
    assert told == ([(1, 1, "error"), (1, 2, "passed")] if again else [(1, 1, "error")])
    assert outcome_of(runs.folder).category == category
    lines = [line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "attempt"]
    assert len(lines) == len(kept) <= MOST_ATTEMPTS
    assert [record["kind"] for record in records].count("plan") == 1


LOADERS = (
    TRAIN
    + """
for number in range(3):                       # as loader processes are: forked, deaf to Ctrl-C, in nobody's session
    if os.fork() == 0:
        os.setsid(); signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(120); os._exit(0)
for number in range(3):                       # and children that nobody waits for
    if os.fork() == 0: os._exit(0)
steps()
"""
)


@pytest.mark.parametrize(
    ("rest", "status"), [("stop()\nos._exit(0)\n", "passed"), ("os.kill(os.getpid(), 9)\n", "error")]
)
def test_loader_processes_and_defunct_children_do_not_outlive_the_run(tmp_path: Path, rest: str, status: str) -> None:
    runs = trainer(tmp_path)(toy_plan(tmp_path, LOADERS + rest, topology="1x1"))
    outcome = outcome_of(runs.folder)
    assert outcome.status == status
    ended = next(line for line in read_lines(runs.folder / "r1" / "harness.jsonl") if line["event"] == "node_exit")
    assert len(ended["killed"]) >= 3
    assert ended["leftover"] == []
    assert nothing_left()
    assert not [pid for pid in children_of(os.getpid()) if state_of(pid) == "Z"], "no agent is left defunct"


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if Path(f"/proc/{pid}").exists() else ""
    return [int(word) for word in text.split()]


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_node_without_its_data_is_no_fault_of_the_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fixtures import execution

    real = execution.preflight_spec
    gone = str(tmp_path / "gone.h5")
    monkeypatch.setattr(execution, "preflight_spec", lambda *a, **k: real(*a, **k).model_copy(update={"data": (gone,)}))
    runs = trainer(tmp_path)(toy_plan(tmp_path))
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category) == ("error", "environment")
    assert outcome.reason == (
        f"node 0 on {os.uname().nodename}: {gone} cannot be read (No such file or directory);"
        " mount the data folder on this host, or say another --data-dir"
    )
    assert (runs.folder / "r1.2").is_dir()
    found = json.loads((runs.folder / "r1" / "environment.json").read_text())["preflight"]["node0"]
    assert found["memory"]["available_bytes"] > 0
    assert abs(found["clock_skew_s"]) < 5
    assert found["ports"] == {next(iter(found["ports"])): "free"}
    assert not (runs.folder / "r1" / "events" / "rank0.jsonl").exists()
    assert nothing_left()


def test_the_preflight_answers_although_a_part_of_it_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "memory", lambda: 1 / 0)
    report = preflight.look({"run_dir": "/", "disk_bytes": 1})
    assert report["remarks"] == ["preflight: memory: ZeroDivisionError: division by zero"]
    assert report["problems"] == []


def test_an_agent_that_is_told_to_end_does_not_finish_its_preflight(tmp_path: Path) -> None:
    from fixtures.launch_local import LocalLauncher
    from fixtures.launcher import AgentSpec, PreflightSpec

    os.mkfifo(tmp_path / "pipe")
    run = f"preflight-test-{os.getpid()}"
    looking = PreflightSpec(
        method="proc", devices=(), library="", sources=(), timeout_s=5, env={}, run_dir=str(tmp_path), disk_bytes=1,
        data=(str(tmp_path / "pipe"),), limit_s=60,
    )  # fmt: skip
    handle = LocalLauncher().start(
        AgentSpec(run=run, node=0, argv=("true",), log=str(tmp_path / "log"), preflight=looking, total_s=60)
    )
    said: list[Mapping[str, Any]] = []
    until(lambda: said.extend(handle.poll()) or any(word["agent"] == "ready" for word in said))
    time.sleep(0.3)
    handle.send({"do": "end", "reason": "enough"})
    until(lambda: said.extend(handle.poll()) or handle.gone())
    handle.kill()
    assert said[-1]["agent"] == "ended"
    assert "preflight" not in [word["agent"] for word in said]
    until(lambda: not tagged_with(run))
