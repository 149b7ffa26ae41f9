"""The launcher slurm on a real cluster of two nodes: every way a job can end, and an empty queue after each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.faults.checkout import ToyCheckout
from fixtures.node import processes
from tests.launch_toy import GOOD, ROOT, TRAIN, tagged_with, until
from tests.run_folders import read_lines
from tests.slurm.cluster import Cluster, missing
from tests.slurm_toy import ENDLESS, AtFirstStep, ended, settled, slurm_trainer, two_nodes
from tests.spine import BRIEF_BASE

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "a cluster can be made")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(autouse=True)
def _clean(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client's environment; afterwards no job, no process."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    yield
    assert cluster.queue() == []
    until(lambda: not tagged_with(f"toy-{os.getpid()}"))


def job_of(folder: Path) -> str:
    """The job of the first grant."""
    lines = read_lines(next(folder.glob("session/toy-*/harness.jsonl")))
    return str(next(line for line in lines if line["event"] == "scheduler")["job_id"])


def test_two_nodes_train_in_a_job_of_their_own(tmp_path: Path) -> None:
    progress = AtFirstStep(lambda: None)
    train = GOOD.replace("pid=os.getpid(),", "pid=os.getpid(), host=os.uname().nodename,")
    runs = slurm_trainer(tmp_path, progress, account="lab", comment="for a test")(two_nodes(tmp_path, train))
    assert ended(runs).status == "passed"
    hosts = {rank: event["host"] for rank, event in progress.events if event["event"] == "header"}
    assert hosts == {0: "n1", 1: "n2"}
    environment = json.loads((runs.folder / "r1" / "environment.json").read_text())
    facts = environment["scheduler"]
    assert facts["state"] == "COMPLETED" and facts["job_id"].isdigit() and facts["nodes"] == "n[1-2]"
    assert facts["account"] == "lab" and "node=2" in facts["tres"] and "energy_j" not in facts
    phases = [line for line in read_lines(runs.folder / "r1" / "harness.jsonl") if line["event"] == "phase"]
    assert phases[0]["name"] == "queue" and phases[0]["seconds"] > 0
    assert {path.name for path in (runs.folder / "slurm").iterdir()} >= {"job.sh", "control"}
    assert list((runs.folder / "slurm" / "control").iterdir()) == []  # the token is gone


def test_scancel_is_an_interruption_by_somebody(tmp_path: Path, cluster: Cluster) -> None:
    progress = AtFirstStep(lambda: cluster.client("scancel", job_of(tmp_path)))
    runs = slurm_trainer(tmp_path, progress)(two_nodes(tmp_path, ENDLESS))
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "interrupted")
    assert outcome.reason == f"Slurm job {job_of(tmp_path)} was cancelled"
    assert not (runs.folder / "r1.2").exists()


def test_a_dead_slurmd_is_a_lost_node_and_another_job_makes_it_good(tmp_path: Path, cluster: Cluster) -> None:
    progress = AtFirstStep(lambda: cluster.kill_node("n2"))
    train = (
        TRAIN
        + """
if run["attempt"] == 1:
    steps()
    while True:
        say('heartbeat', step=1); time.sleep(0.1)
steps(1); stop()
"""
    )
    plan = two_nodes(tmp_path, train)
    threading.Thread(target=_restart_when_lost, args=(cluster, tmp_path), daemon=True).start()
    runs = slurm_trainer(tmp_path, progress)(plan)
    first, second = ended(runs), ended(runs, "r1.2")
    assert (first.status, first.category) == ("error", "lost_node")
    assert "n2" in first.reason
    assert second.status == "passed"
    jobs = {line["job_id"] for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "scheduler"}
    assert len(jobs) == 2
    cluster.await_idle()


def _restart_when_lost(cluster: Cluster, folder: Path) -> None:
    """The node's daemon comes back once the first run is known to be lost."""
    due = time.monotonic() + 120
    while time.monotonic() < due:
        told = [path.read_text() for path in folder.glob("session/toy-*/r1/harness.jsonl")]
        if any('"lost_node"' in text for text in told):
            cluster.start_node("n2")
            return
        time.sleep(0.2)


def test_the_time_limit_is_a_timeout_though_its_exit_code_is_zero(tmp_path: Path, cluster: Cluster) -> None:
    plan = two_nodes(tmp_path, ENDLESS)
    runs = slurm_trainer(tmp_path, most_time_s=1.0)(plan)
    outcome = ended(runs)
    assert (outcome.status, outcome.category) == ("error", "timeout")
    assert "time limit (00:01:00)" in outcome.reason
    environment = json.loads((runs.folder / "r1" / "environment.json").read_text())
    assert (environment["scheduler"]["state"], environment["scheduler"]["exit_code"]) == ("TIMEOUT", "0:0")


def test_a_full_queue_is_waited_for_no_longer_than_allowed(tmp_path: Path, cluster: Cluster) -> None:
    argv = ("sbatch", "--parsable", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 120")
    hog = cluster.client(*argv).strip()
    until(lambda: "RUNNING" in cluster.client("squeue", "-h", "-j", hog, "-o", "%T"))
    try:
        runs = slurm_trainer(tmp_path, queue_s=3.0)(two_nodes(tmp_path, GOOD))
        outcome = settled(runs)
        assert (outcome.status, outcome.category) == ("not_started", "budget")
        assert "(Resources)" in outcome.reason and "queue_s" in outcome.reason
        assert cluster.queue() == [hog]  # ours is gone, and only ours
    finally:
        cluster.client("scancel", hog)
        until(lambda: not cluster.queue(), 30)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"partition": "short"}, "can never start: Partition"),  # TimeLimit, or Config: as the controller looks at it
        ({"partition": "nowhere"}, "sbatch refused the job"),
        ({"constraint": "unobtainium"}, "Invalid feature specification"),
        ({"mem": "99999999"}, "Memory specification can not be satisfied"),
        ({"extra": ["--no-such-option=1"]}, "sbatch refused the job"),
    ],
)
def test_what_can_never_start_is_unavailable_at_once(tmp_path: Path, table: dict[str, object], words: str) -> None:
    runs = slurm_trainer(tmp_path, **table)(two_nodes(tmp_path, GOOD))
    outcome = settled(runs)
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert words in outcome.reason


def test_more_nodes_than_the_partition_has(tmp_path: Path) -> None:
    outcome = settled(slurm_trainer(tmp_path)(two_nodes(tmp_path, GOOD, topology="5x1")))
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "can never start: Partition" in outcome.reason  # NodeLimit, or Config: as the controller looks at it


def test_preempted_goes_on_from_the_checkpoint_in_another_job(tmp_path: Path, cluster: Cluster) -> None:
    train = (
        TRAIN
        + """
if run["attempt"] == 1:
    open(os.path.join(run["run_dir"], "checkpoints", "latest.pt"), "w").write("here")
    steps()
    while True:
        say('heartbeat', step=1); time.sleep(0.1)
assert open(run["resume"]).read() == "here"
steps(2); stop()
"""
    )
    urgent = ("sbatch", "--parsable", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")
    progress = AtFirstStep(lambda: cluster.client(*urgent))
    runs = slurm_trainer(tmp_path, progress)(two_nodes(tmp_path, train))
    first = ended(runs)
    assert (first.status, first.category) == ("error", "preempted")
    assert ended(runs, "r1.2").status == "passed"
    assert json.loads((runs.folder / "r1.2" / "run.json").read_text())["resume"].endswith("r1/checkpoints/latest.pt")


def test_inside_an_allocation_nothing_is_submitted_and_nothing_cancelled(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["salloc", "--no-shell", "-N2"]
    told = subprocess.run(argv, env=cluster.env, capture_output=True, text=True, timeout=30, check=True).stderr
    job = next(word for word in told.split() if word.isdigit())
    try:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
        runs = slurm_trainer(tmp_path)(two_nodes(tmp_path, GOOD))
        assert ended(runs).status == "passed"
        assert cluster.queue() == [job]
        lines = read_lines(runs.folder / "harness.jsonl")
        assert {line["job_id"] for line in lines if line["event"] == "scheduler"} == {job}
        too_many = settled(slurm_trainer(tmp_path)(two_nodes(tmp_path, GOOD, id="more", topology="3x1")))
        assert (too_many.status, too_many.category) == ("not_started", "unavailable")
    finally:
        cluster.client("scancel", job)
        until(lambda: not cluster.queue(), 30)


def test_slurmctld_may_be_away_while_a_run_lasts(tmp_path: Path, cluster: Cluster) -> None:
    train = TRAIN + "steps(1); time.sleep(4); steps(2); stop()\n"
    timer = threading.Timer(3.0, cluster.start_controller)

    def leave_for_a_while() -> None:
        cluster.stop_controller()
        timer.start()

    progress = AtFirstStep(leave_for_a_while)
    try:
        runs = slurm_trainer(tmp_path, progress)(two_nodes(tmp_path, train))
    finally:
        if progress.done:
            timer.join()
    assert progress.done
    assert ended(runs).status == "passed"


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.slurm_toy import ENDLESS, slurm_trainer, two_nodes
slurm_trainer(Path(sys.argv[1]))(two_nodes(Path(sys.argv[1]), ENDLESS))
"""


def test_a_controller_that_is_killed_takes_job_and_processes_with_it(tmp_path: Path, cluster: Cluster) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)]
    controller = subprocess.Popen(argv, env=cluster.env)
    run = f"toy-{controller.pid}"
    try:
        until(lambda: list(tmp_path.glob("session/*/r1/events/rank1.jsonl")), 60)
        until(lambda: len(tagged_with(run)) >= 4)
    finally:
        os.kill(controller.pid, signal.SIGKILL)
        controller.wait()
    until(lambda: not [pid for pid in tagged_with(run) if processes.read(pid)], 8)
    until(lambda: not cluster.queue(), 30)


def test_a_submitted_job_outlives_its_submitter(tmp_path: Path, cluster: Cluster) -> None:
    toy = ToyCheckout(tmp_path / "a clone")
    toy.variables["SLURM_CONF"] = str(cluster.conf)
    toy.write("site.toml", '[launch]\nlauncher = "slurm"\n[lease]\ndir = "leases"\n[slurm]\npoll_s = 0.5\n')
    assert toy.run(toy.command("--submit", topology="2x1")) == 0, toy.output
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", "--attach", str(toy.results)]
    assert toy.run(argv) == 0, toy.output
    (result,) = toy.session()["results"]
    assert result["outcome"]["status"] == "passed"
    assert result["environment"]["scheduler"]["state"] == "COMPLETED"
    assert [node["host"] for node in result["environment"]["preflight"].values()] in (["n1", "n2"], ["n2", "n1"])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("model", ["glm", "alma"])
def test_a_case_trains_on_two_nodes(tmp_path: Path, cluster: Cluster, model: str) -> None:
    """Through the command line, to its target."""
    site = tmp_path / "site.toml"
    site.write_text('[launch]\nlauncher = "slurm"\n[environment]\nGLOO_SOCKET_IFNAME = "lo"\n')
    argv = [sys.executable, "-m", "pytest", "suite", "--model", model, "--framework", "pytorch"]
    argv += [
        "--topology",
        "2x1",
        "--vendor",
        "cpu",
        "-p",
        "no:cacheprovider",
        "--site",
        str(site),
        "--session",
        str(tmp_path / "session"),
        *BRIEF_BASE,
    ]
    done = subprocess.run(argv, cwd=ROOT, env=cluster.env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "session").glob(f"{model}-*")
    headers = [json.loads((folder / "r1" / "events" / f"rank{rank}.jsonl").open().readline()) for rank in (0, 1)]
    assert [header["host"] for header in headers] == ["n1", "n2"]
    assert json.loads((folder / "result.json").read_text())["environment"]["scheduler"]["state"] == "COMPLETED"
