"""A job's life as a scripted scheduler tells it: rare states, silence, refusals, and how often it is asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import slurm_granted, slurm_job
from fixtures.faults.scheduler import AWAY, UNKNOWN, FakeSlurm
from fixtures.slurm_client import Slurm, SlurmAway, SlurmProblem
from fixtures.slurm_watch import JobWatch
from fixtures.training import Runs
from suite.outcome import Outcome
from tests.launch_toy import GOOD, TRAIN, Watcher, tagged_with, until
from tests.run_folders import read_lines
from tests.slurm_toy import ENDLESS, AtFirstStep, ended, settled, slurm_trainer, two_nodes

PENDING = {"JobState": "PENDING", "Reason": "Priority"}
RUNNING = {"JobState": "RUNNING", "Reason": "None", "NodeList": "f[1-2]", "TRES": "cpu=2,node=2"}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name in ("LEAVE_S", "GONE_S"):
        monkeypatch.setattr(slurm_job, name, 6.0)
    monkeypatch.setattr(slurm_granted, "GONE_S", 6.0)
    fake = FakeSlurm(tmp_path / "slurm fake")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    try:
        yield fake
    finally:
        fake.down()
        until(lambda: not tagged_with(f"toy-{os.getpid()}"))


def play(slurm: FakeSlurm, tmp_path: Path, train: str = GOOD, progress: Watcher | None = None, **table: object) -> Runs:
    """A plan of two nodes in the scripted job."""
    return slurm_trainer(tmp_path, progress, **table)(two_nodes(tmp_path, train))


def test_a_whole_run_on_nodes_that_do_not_exist(slurm: FakeSlurm, tmp_path: Path) -> None:
    accounted = {"JobID": "77", "State": "COMPLETED", "ConsumedEnergyRaw": "5000", "ElapsedRaw": "8"}
    slurm.script(PENDING, RUNNING, job="77;cluster", runs=True, accounted=accounted)
    runs = play(slurm, tmp_path)
    assert ended(runs) == Outcome(status="passed")
    facts = json.loads((runs.folder / "r1" / "environment.json").read_text())["scheduler"]
    assert facts["job_id"] == "77" and facts["energy_j"] == 5000.0 and facts["elapsed_s"] == 8.0
    submitted = slurm.calls("sbatch")
    assert len(submitted) == 1 and submitted[0][1] == "--parsable"
    assert all(call[-1] == "77" for call in slurm.calls("scancel"))


@pytest.mark.parametrize(
    ("answers", "status", "category", "words"),
    [
        (
            [{**PENDING, "Reason": "PartitionNodeLimit"}],
            "not_started",
            "unavailable",
            "never start: PartitionNodeLimit",
        ),
        ([{**PENDING, "Reason": "AccountNotAllowed"}], "not_started", "unavailable", "AccountNotAllowed"),
        ([{**PENDING, "Reason": "ReqNodeNotAvail,_UnavailableNodes:f2"}], "not_started", "unavailable", "Nodes:f2"),
        ([PENDING, {"JobState": "CANCELLED", "Reason": "None"}], "not_started", "interrupted", "while it waited"),
        ([PENDING, {"JobState": "BOOT_FAIL", "Reason": "None", "NodeList": "f1"}], "error", "lost_node", "boot"),
        ([{"JobState": "FAILED", "Reason": "BadConstraints"}], "not_started", "unavailable", "BadConstraints"),
        ([{"JobState": "DEADLINE", "Reason": "DeadLine"}], "not_started", "unavailable", "DEADLINE"),
        (
            [{"JobState": "FAILED", "Reason": "JobLaunchFailure", "NodeList": "f1", "ExitCode": "0:53"}],
            "error",
            "provision",
            "JobLaunchFailure",
        ),
        ([UNKNOWN], "error", "provision", "knows no job 77"),
        ([{"JobState": "REQUEUE_FED", "Reason": "None"}], "not_started", "budget", "queue_s"),
        ([{"JobState": "BRAND_NEW", "Reason": "None"}], "not_started", "budget", "queue_s"),
    ],
)
def test_jobs_that_never_run(
    slurm: FakeSlurm, tmp_path: Path, answers: list[object], status: str, category: str, words: str
) -> None:
    slurm.script(*answers)  # type: ignore[arg-type]
    runs = play(slurm, tmp_path, queue_s=2.5)
    outcome = settled(runs)
    assert (outcome.status, outcome.category) == (status, category), outcome.reason
    assert words in outcome.reason
    if category == "budget":
        assert slurm.calls("scancel") == [["scancel", "77"]]


def test_a_refused_submission_is_told_in_slurms_own_words(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.script(PENDING, refuse="Batch job submission failed: Invalid account or account/partition combination")
    outcome = settled(play(slurm, tmp_path))
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "Invalid account or account/partition combination" in outcome.reason
    assert slurm.calls("scancel") == []


def test_a_silent_daemon_is_no_end_and_then_too_long(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.script(PENDING, AWAY, AWAY, AWAY, {**PENDING, "Reason": "InvalidQOS"})
    assert "InvalidQOS" in settled(play(slurm, tmp_path)).reason
    slurm.script(AWAY)
    progress = Watcher()
    outcome = settled(play(slurm, tmp_path, progress=progress, away_s=1.0))
    assert (outcome.status, outcome.category) == ("error", "provision")
    assert "has not answered" in outcome.reason
    assert "is still there" in progress.notes[-1]  # what became of the job nobody can say


@pytest.mark.parametrize(
    ("state", "category"),
    [
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("TIMEOUT", "timeout"),
        ("NODE_FAIL", "lost_node"),
        ("CANCELLED", "interrupted"),
        ("REVOKED", "interrupted"),
    ],
)
def test_how_a_job_ends_is_how_its_run_ended(slurm: FakeSlurm, tmp_path: Path, state: str, category: str) -> None:
    slurm.script(RUNNING, runs=True)
    end = {**RUNNING, "JobState": state, "ExitCode": "0:0"}

    def act() -> None:
        slurm.script(end, down=["f2"] if state == "NODE_FAIL" else [], refuse="no more")

    runs = play(slurm, tmp_path, ENDLESS, AtFirstStep(act))
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", category)
    assert ("f2" in outcome.reason) is (state == "NODE_FAIL")
    assert not (runs.folder / "r1.2").exists()


def test_a_requeued_job_is_a_lost_node(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.script(RUNNING, runs=True)
    act = lambda: slurm.script({**PENDING, "Restarts": "1"}, refuse="no more")  # noqa: E731
    outcome = ended(play(slurm, tmp_path, ENDLESS, AtFirstStep(act), queue_s=3.0))
    assert (outcome.status, outcome.category) == ("error", "lost_node")
    assert "put back into the queue" in outcome.reason


def test_a_rank_that_fails_by_itself_is_told_by_the_rank(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.script(RUNNING, runs=True)
    train = TRAIN + "steps(1)\nif rank == 1: raise SystemExit(7)\ntime.sleep(30)\n"
    outcome = ended(play(slurm, tmp_path, train))
    assert (outcome.status, outcome.category, outcome.rank) == ("error", "crash", 1)
    assert "status 7" in outcome.reason


def test_a_missing_client_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    runs = slurm_trainer(tmp_path)(two_nodes(tmp_path, GOOD))
    outcome = settled(runs)
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "sbatch, srun, scontrol, scancel" in outcome.reason


def test_the_scheduler_is_asked_ever_more_rarely(slurm: FakeSlurm) -> None:
    slurm.script(PENDING)
    watch = JobWatch(Slurm(), "77", 0.5)
    try:
        until(lambda: watch.looks >= 3)
        times = []
        for _ in range(3):
            before, start = watch.looks, time.monotonic()
            until(lambda: watch.looks > before)  # noqa: B023
            times.append(time.monotonic() - start)
        assert len(slurm.calls("scontrol")) <= 8
        assert sum(times) > 0.5 * len(times)  # the pause has a floor, and grows
    finally:
        watch.stop()
    asked = len(slurm.calls())
    time.sleep(0.7)
    assert len(slurm.calls()) == asked


def test_a_job_that_aged_out_is_looked_up_in_the_accounting(slurm: FakeSlurm) -> None:
    slurm.script(UNKNOWN, accounted={"JobID": "77", "State": "TIMEOUT", "ElapsedRaw": "60", "Timelimit": "00:01:00"})
    view = Slurm().job("77")
    assert view is not None and view.state == "TIMEOUT" and view.fields["ElapsedRaw"] == "60"
    slurm.script(UNKNOWN)
    assert Slurm().job("77") is None
    slurm.script(AWAY)
    with pytest.raises(SlurmAway, match="Unable to contact slurm controller"):
        Slurm().job("77")
    slurm.script(refuse="nothing doing")
    with pytest.raises(SlurmProblem, match="sbatch refused the job: nothing doing"):
        Slurm().submit(["x.sh"])


def test_the_queue_is_a_phase_of_the_ledger(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.script(PENDING, RUNNING, runs=True)
    runs = play(slurm, tmp_path)
    phases = [line for line in read_lines(runs.folder / "r1" / "harness.jsonl") if line["event"] == "phase"]
    assert [line["name"] for line in phases] == ["queue", "prepare", "launch", "teardown"]
    told = [line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "scheduler"]
    assert {line["job_id"] for line in told} == {"77"} and all("energy_j" not in line for line in told)
