"""train(): real processes, a toy launcher and toy ranks; whatever happens is an outcome, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.hardware import Probe
from fixtures.site import Data, Lease, Policy, Site
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.plan import Deadlines, Plan, Step
from suite.session import Session
from tests.launch_toy import GOOD, ROOT, TRAIN, Watcher, tagged_with, toy_plan, trainer, until
from tests.run_folders import read_lines, with_base

ENDLESS = TRAIN + "steps()\nwhile True:\n    say('heartbeat', step=1); time.sleep(0.05)\n"


def outcome_of(folder: Path, run: str = "r1") -> Outcome:
    """The last `ended` of a run."""
    ended = [line for line in read_lines(folder / run / "harness.jsonl") if line["event"] == "ended"]
    keys = ("status", "category", "reason", "rank", "log_tail")
    return Outcome.model_validate({key: ended[-1][key] for key in keys})


def settled_of(folder: Path) -> Outcome:
    """The settled outcome of a plan."""
    return Outcome.model_validate(read_lines(folder / "harness.jsonl")[-1]["outcome"])


def nothing_left() -> bool:
    return not tagged_with(f"toy-{os.getpid()}")


@pytest.mark.parametrize("topology", ["1x1", "1x2", "2x1"])
def test_a_good_run_leaves_a_complete_folder(tmp_path: Path, topology: str) -> None:
    progress, records = Watcher(), list[dict[str, Any]]()
    plan = toy_plan(tmp_path, topology=topology)
    runs = trainer(tmp_path, progress, records)(plan)
    run = runs.folder / "r1"
    assert runs.folder == tmp_path / "session" / plan.id
    assert outcome_of(runs.folder) == Outcome(status="passed")
    assert Plan.read(runs.folder / "plan.json") == plan
    nnodes = plan.topology.nnodes
    lines = read_lines(run / "harness.jsonl")
    assert sorted(line["node"] for line in lines if line["event"] == "started") == list(range(nnodes))
    assert sorted(line["rank"] for line in lines if line["event"] == "header_seen") == list(range(plan.world_size))
    exits = {line["node"]: line for line in lines if line["event"] == "node_exit"}
    assert sorted(exits) == list(range(nnodes))
    assert all((line["returncode"], line["leftover"]) == (0, []) for line in exits.values())
    phases = [line["name"] for line in lines if line["event"] == "phase"]
    assert phases == ["queue", "prepare", "launch", "teardown"]
    witness = next(line for line in lines if line["event"] == "witness")
    least, most = witness["span_s"]
    assert 0 <= least <= most and least < witness["wall_s"]
    names = {path.name for path in run.iterdir()}
    assert {
        "run.json",
        "command.txt",
        "environment.json",
        "monitor.jsonl",
        "events",
        "exits",
        "logs",
        "checkpoints",
    } <= names
    assert ("monitor-node1.jsonl" in names) == (nnodes == 2)
    assert len((run / "command.txt").read_text().split(str(run / "run.json"))) == nnodes + 1
    assert [record["kind"] for record in records if record["kind"] != "phase"] == ["plan", "attempt"]
    assert [record["name"] for record in records if record["kind"] == "phase"] == ["launch", "train", "teardown"]
    json.dumps(records)
    assert progress.started == ["r1"]
    assert progress.ended == [Outcome(status="passed")]
    assert {rank for rank, _ in progress.events} == set(range(plan.world_size))
    assert nothing_left()


def test_the_ranks_read_what_the_contract_says(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="1x1", seeds=(11, 22), repeat=2, limit_s=9.0, sabotage="labels_shuffled")
    runs = trainer(tmp_path)(plan)
    spec = json.loads((runs.folder / "r2" / "run.json").read_text())
    keys = """schema run id n attempt mode preset params seed topology quality limit_s device expect machine
    data_dir case_dir extern_dir runtime_dir slots run_dir checkpoint resume heartbeat_s capabilities sabotage"""
    assert sorted(spec) == sorted(keys.split())
    assert (spec["n"], spec["seed"], spec["limit_s"], spec["sabotage"]) == (2, 22, 9.0, "labels_shuffled")
    assert spec["quality"] == {"metric": "accuracy", "better": "higher", "target": 0.7}
    assert spec["checkpoint"] == {"every_s": 0, "final": True}
    assert spec["run"] != json.loads((runs.folder / "r1" / "run.json").read_text())["run"]


def test_a_secret_of_the_site_is_written_nowhere(tmp_path: Path) -> None:
    site = Site(environment={"TOY_TOKEN": "s3cret"}, lease=Lease(dir=str(tmp_path / "l")))
    train = TRAIN + "print(os.environ['TOY_TOKEN'] == 's3cret', flush=True); stop()\n"
    runs = trainer(tmp_path, site=site)(toy_plan(tmp_path, train, topology="1x1"))
    assert "True" in (runs.folder / "r1" / "logs" / "rank0.log").read_text()
    texts = [path.read_text() for path in runs.folder.rglob("*") if path.is_file()]
    assert not any("s3cret" in text for text in texts)
    assert "TOY_TOKEN" in (runs.folder / "r1" / "environment.json").read_text()


def kill_rank(which: str) -> Any:
    """Kill rank 1 at its first step: the training, or its wrapper as well."""

    def act(rank: int, event: Mapping[str, object]) -> None:
        if rank == 1 and event["event"] == "steps":
            time.sleep(0.1)
            pid = act.pid  # type: ignore[attr-defined]
            for victim in [int(Path(f"/proc/{pid}/stat").read_text().split()[3])] if which == "wrapper" else []:
                os.kill(victim, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):  # the training dies with its wrapper, perhaps by now
                os.kill(pid, signal.SIGKILL)
        elif rank == 1 and event["event"] == "header":
            act.pid = event["pid"]  # type: ignore[attr-defined]

    return act


@pytest.mark.parametrize("which", ["training", "wrapper"])
def test_a_killed_rank_is_a_crash_that_names_it(tmp_path: Path, which: str) -> None:
    runs = trainer(tmp_path, Watcher(kill_rank(which)))(toy_plan(tmp_path, ENDLESS))
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category, outcome.rank) == ("error", "crash", 1)
    assert outcome.reason == "rank 1 was killed by SIGKILL (signal 9)"
    assert "rank 1 of 2" in outcome.log_tail
    assert nothing_left()
    assert not (runs.folder / "r1.2").exists(), "a crash is not tried again"


def test_a_lost_agent_is_a_lost_node_and_is_tried_again(tmp_path: Path) -> None:
    progress, records = Watcher(), list[dict[str, Any]]()
    killed: list[int] = []

    def act(rank: int, event: Mapping[str, object]) -> None:
        if event["event"] != "steps" or killed:
            return
        log = next(tmp_path.glob("session/*/r1/harness.jsonl"))
        launcher = next(line["pid"] for line in read_lines(log) if line["event"] == "started")
        killed.append(int(Path(f"/proc/{launcher}/stat").read_text().split()[3]))
        os.kill(killed[0], signal.SIGKILL)

    progress = Watcher(act)
    first_only = TRAIN + "steps()\nif run['attempt'] == 1: time.sleep(60)\nstop()\n"
    runs = trainer(tmp_path, progress, records)(toy_plan(tmp_path, first_only))
    assert outcome_of(runs.folder).category == "lost_node"
    assert outcome_of(runs.folder, "r1.2").status == "passed"
    told = [(r["folder"], r["outcome"]["category"]) for r in records if r["kind"] == "attempt"]
    assert told == [("r1", "lost_node"), ("r1.2", "")]
    assert [note for note in progress.notes if note.endswith("trying again")]
    assert nothing_left()


def test_a_hang_shows_the_stacks(tmp_path: Path) -> None:
    limits = Deadlines(total_s=60, no_progress_s=1)
    runs = trainer(tmp_path)(toy_plan(tmp_path, ENDLESS, topology="1x1", deadlines=limits))
    outcome = outcome_of(runs.folder)
    assert (outcome.category, outcome.rank) == ("hang", 0)
    assert any("most recent call first" in line for line in outcome.log_tail)
    assert nothing_left()


def test_a_deadline_ends_ranks_that_ignore_sigterm(tmp_path: Path) -> None:
    deaf = ENDLESS.replace("steps()\n", "steps(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n")
    limits = Deadlines(total_s=1.5)
    runs = trainer(tmp_path)(toy_plan(tmp_path, deaf, deadlines=limits))
    assert outcome_of(runs.folder).category == "timeout"
    assert len(read_lines(runs.folder / "r1" / "harness.jsonl")) > 5
    assert nothing_left()


def test_a_rank_that_raises(tmp_path: Path) -> None:
    runs = trainer(tmp_path)(toy_plan(tmp_path, TRAIN + "raise ValueError('no such layer')\n", topology="1x1"))
    outcome = outcome_of(runs.folder)
    assert outcome.reason == "rank 0 left with status 1: ValueError: no such layer"
    assert outcome.log_tail[-1] == "ValueError: no such layer"


def test_a_mismatch_that_a_rank_saw_is_not_tried_again(tmp_path: Path) -> None:
    train = TRAIN + "stop('aborted', 'environment', 'precision is fp32, the plan says bf16'); sys.exit(1)\n"
    runs = trainer(tmp_path)(toy_plan(tmp_path, train, topology="1x1"))
    assert outcome_of(runs.folder).category == "environment"
    assert not (runs.folder / "r1.2").exists()


def test_the_base_runs_before_each_repeat_and_after_the_last(tmp_path: Path) -> None:
    progress, records = Watcher(), list[dict[str, Any]]()
    plan = with_base(toy_plan(tmp_path, repeat=2, seeds=(1, 2)))
    assert plan.base is not None
    where = {"case_dir": plan.case_dir, "vendor_dir": plan.vendor_dir}
    plan = plan.model_copy(update={"base": plan.base.model_copy(update=where)})
    runs = trainer(tmp_path, progress, records)(plan)
    assert progress.started == ["base/r1", "r1", "base/r2", "r2", "base/r3"]
    assert Plan.read(runs.folder / "base" / "plan.json").topology.world_size == 1
    line = next(line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "base")
    assert (line["folder"], line["reused"]) == ("base", False)
    assert [record["folder"] for record in records if record["kind"] == "attempt"] == ["r1", "r2"]
    tags = {json.loads(path.read_text())["run"] for path in runs.folder.rglob("run.json")}
    assert len(tags) == 5
    assert nothing_left()


def test_an_equal_base_of_this_session_is_reused(tmp_path: Path) -> None:
    plan = with_base(toy_plan(tmp_path))
    assert plan.base is not None
    earlier = tmp_path / "session" / "earlier"
    earlier.mkdir(parents=True)
    plan.base.write(earlier / "plan.json")
    result = {"plan_digest": plan.base.plan_digest, "outcome": {"status": "inconclusive", "category": "no_threshold"}}
    (earlier / "result.json").write_text(json.dumps(result | {"metrics": {"throughput_train": {}}}))
    progress = Watcher()
    runs = trainer(tmp_path, progress)(plan)
    assert progress.started == ["r1"]
    line = next(line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "base")
    assert (line["folder"], line["reused"]) == (str(earlier), True)
    assert str(earlier) in line["note"]


def test_a_lost_run_ends_the_repeats(tmp_path: Path) -> None:
    progress = Watcher()
    trainer(tmp_path, progress)(toy_plan(tmp_path, "raise SystemExit(3)\n", topology="1x1", repeat=3, seeds=(1, 2, 3)))
    assert progress.started == ["r1"]


def test_what_cannot_be_had_is_not_started(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    runs = trainer(tmp_path, records=records)(toy_plan(tmp_path, topology="1x8"))
    outcome = settled_of(runs.folder)
    assert (outcome.status, outcome.category) == ("not_started", "unavailable")
    assert "needs 8 devices" in outcome.reason
    assert [record["kind"] for record in records] == ["plan", "outcome"]
    gone = trainer(tmp_path, probe=Probe(problem="no driver"))(toy_plan(tmp_path, topology="1x1"))
    assert settled_of(gone.folder).reason.endswith("this host offers 0 of host: no driver")


def test_a_session_whose_time_is_over_starts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    late = Session(id="toy", folder=folder, started="", vendor="cpu", machine="host", deadline_wall=time.time() - 1)
    runs = trainer(tmp_path, session=late)(toy_plan(tmp_path))
    assert settled_of(runs.folder).category == "budget"


def test_missing_data_is_told_with_the_command(tmp_path: Path) -> None:
    params = {"train_data": "train.h5", "eval_data": "case:eval.json", "init_checkpoint": ""}
    plan = toy_plan(tmp_path, topology="1x1", params=params)
    nowhere = settled_of(trainer(tmp_path)(plan).folder)
    assert (nowhere.status, nowhere.category) == ("error", "config")
    assert (
        "no data folder is named; say --data-dir DIR (see: python -m tools data status toy --preset mini"
        in nowhere.reason
    )
    site = Site(data=Data(default=str(tmp_path / "data")), lease=Lease(dir=str(tmp_path / "l")))
    assert "does not exist" in settled_of(trainer(tmp_path, site=site)(plan).folder).reason
    (tmp_path / "data").mkdir()
    told = settled_of(trainer(tmp_path, site=site)(plan).folder).reason
    assert "1 of 1 files are missing" in told
    assert "(train.h5)" in told
    (tmp_path / "data" / "train.h5").touch()
    runs = trainer(tmp_path, site=site)(plan)
    assert outcome_of(runs.folder).status == "passed"
    assert json.loads((runs.folder / "r1" / "run.json").read_text())["data_dir"] == str(tmp_path / "data")


def test_throughput_trains_without_data(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="1x1", mode="throughput", params={"train_data": "train.h5"})
    runs = trainer(tmp_path)(plan)
    assert outcome_of(runs.folder).status == "passed"
    spec = json.loads((runs.folder / "r1" / "run.json").read_text())
    assert (spec["data_dir"], spec["checkpoint"]["final"]) == (None, False)


def test_a_plan_that_is_run_again_keeps_what_was_there(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="1x1")
    train = trainer(tmp_path)
    assert [train(plan).folder.name for _ in range(2)] == [plan.id, f"{plan.id}.2"]


def test_code_of_a_vendor_needs_trust(tmp_path: Path) -> None:
    site = Site(policy=Policy(trust_vendor_code=False), path="ci.toml", lease=Lease(dir=str(tmp_path / "l")))
    plan = toy_plan(tmp_path, topology="1x1", slots=(Step(slot="attention", path="vendors/x/extern"),))
    with pytest.raises(UsageProblem, match=r"ci.toml: trust_vendor_code = false, and cpu brings code for toy"):
        trainer(tmp_path, site=site)(plan)
    assert list((tmp_path / "session").iterdir()) == []
    assert outcome_of(trainer(tmp_path, site=site)(toy_plan(tmp_path, topology="1x1")).folder).status == "passed"


def test_devices_that_another_session_holds(tmp_path: Path) -> None:
    from fixtures.node.lease import Lease as Locks

    other = Locks(tmp_path / "leases", ["cpu1"], exclusive=True, owner={"user": "bob", "session": "s9"})
    assert other.attempt() == {}
    plan = toy_plan(tmp_path)
    refused = settled_of(trainer(tmp_path)(plan).folder)
    assert (refused.status, refused.category) == ("not_started", "unavailable")
    assert refused.reason == "1 of 2 devices are leased (bob, session s9); wait with --wait-for-devices"
    progress = Watcher()
    site = Site(lease=Lease(dir=str(tmp_path / "leases"), wait_s=0.4))
    late = settled_of(trainer(tmp_path, progress, site=site)(plan).folder)
    assert "waited 0.4 s" in late.reason
    assert progress.notes == ["1 of 2 devices are leased (bob, session s9); waiting up to 0.4 s (--wait-for-devices)"]
    other.release()
    assert outcome_of(trainer(tmp_path, site=site)(plan).folder).status == "passed"


def exclusive(tmp_path: Path) -> Plan:
    """A plan of one device that wants it alone."""
    plan = toy_plan(tmp_path, topology="1x1")
    return plan.model_copy(update={"device": plan.device.model_copy(update={"shared": False})})


def test_free_devices_are_taken_where_others_are_held(tmp_path: Path) -> None:
    from fixtures.node.lease import Lease as Locks

    other = Locks(tmp_path / "leases", ["cpu0"], exclusive=True, owner={"session": "s9"})
    assert other.attempt() == {}
    runs = trainer(tmp_path)(exclusive(tmp_path))
    lease = next(line for line in read_lines(runs.folder / "r1" / "harness.jsonl") if line["event"] == "lease")
    assert lease["keys"] == ["cpu1"]


def test_workers_of_one_session_wait_for_each_other(tmp_path: Path) -> None:
    from fixtures.node.lease import Lease as Locks

    other = Locks(tmp_path / "leases", ["cpu0", "cpu1"], exclusive=True, owner={"session": f"toy-{os.getpid()}"})
    assert other.attempt() == {}

    class Releasing(Watcher):
        """The other worker is done as soon as this one says that it waits."""

        def note(self, text: str) -> None:
            super().note(text)
            if "are leased" in text:
                other.release()

    progress = Releasing()
    runs = trainer(tmp_path, progress)(exclusive(tmp_path))
    assert outcome_of(runs.folder).status == "passed"
    assert "are leased" in progress.notes[0]


def test_the_lease_lasts_over_all_runs_and_no_longer(tmp_path: Path) -> None:
    from fixtures.node.lease import Lease as Locks

    seen: list[list[str]] = []

    def look(rank: int, event: Mapping[str, object]) -> None:
        seen.append(sorted(Locks(tmp_path / "leases", ["cpu0", "cpu1"], exclusive=True, owner={}).attempt()))

    trainer(tmp_path, Watcher(look))(toy_plan(tmp_path))
    assert seen[0] == seen[-1] == ["cpu0", "cpu1"]
    assert Locks(tmp_path / "leases", ["cpu0", "cpu1"], exclusive=True, owner={}).attempt() == {}


def test_a_foreign_process_in_the_timed_window_voids_the_measurement(tmp_path: Path) -> None:
    sample = {"devices": [{"id": "gpu0", "foreign": [{"pid": 7, "name": "game"}]}]}
    forged = f"json.dump({{**{sample}, 't_wall': time.time()}}, open(run['run_dir'] + '/monitor-node9.jsonl', 'w'))\n"
    train = TRAIN + forged + "stop()\n"
    runs = trainer(tmp_path)(toy_plan(tmp_path, train, topology="1x1", exclusive=True))
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category) == ("failed", "invalid_measurement")
    attempt = next(line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "attempt")
    assert attempt["outcome"]["category"] == "invalid_measurement"


def test_a_leftover_is_an_error_of_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fixtures import attempt

    monkeypatch.setattr(attempt, "leftovers", lambda **_: ["port 20001 is still in use"])
    runs = trainer(tmp_path)(toy_plan(tmp_path, topology="1x1"))
    outcome = outcome_of(runs.folder)
    assert (outcome.status, outcome.category) == ("error", "harness")
    assert outcome.reason == "left behind: port 20001 is still in use"


def test_a_fault_of_ours_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fixtures import attempt

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(attempt, "run_spec", broken)
    outcome = settled_of(trainer(tmp_path)(toy_plan(tmp_path, topology="1x1")).folder)
    assert (outcome.category, outcome.reason) == ("harness", "RuntimeError: bug")
    assert outcome.log_tail[-1] == "RuntimeError: bug"
    assert nothing_left()


def test_an_interrupt_is_announced_cleaned_up_and_raised(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    interrupts = iter(["received SIGTERM"])  # one signal: events are read once more while the run is ended

    def act(rank: int, event: Mapping[str, object]) -> None:
        if event["event"] == "steps" and (signal := next(interrupts, None)):
            raise KeyboardInterrupt(signal)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, Watcher(act), records)(toy_plan(tmp_path, ENDLESS, repeat=2, seeds=(1, 2)))
    assert nothing_left()
    folder = next((tmp_path / "session").iterdir())
    assert outcome_of(folder).category == "interrupted"
    outcome = settled_of(folder)
    assert (outcome.status, outcome.category) == ("error", "interrupted")
    assert outcome.reason == "the session was interrupted (received SIGTERM)"
    assert [record["kind"] for record in records if record["kind"] == "outcome"] == ["outcome"]
    assert time.monotonic() - start < 60
    assert not (folder / "r2").exists()


CONTROLLER = """
import sys
from pathlib import Path
from tests.launch_toy import toy_plan, trainer, Watcher
from tests.test_launch_training import ENDLESS
folder = Path(sys.argv[1])
act = lambda rank, event: event["event"] == "steps" and print("trains", flush=True)
trainer(folder, Watcher(act))(toy_plan(folder, ENDLESS))
"""


def test_a_killed_controller_leaves_nothing(tmp_path: Path) -> None:
    controller = subprocess.Popen([sys.executable, "-c", CONTROLLER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert controller.stdout is not None
    assert controller.stdout.readline() == b"trains\n"
    tag = f"toy-{controller.pid}"
    assert len(tagged_with(tag)) >= 7  # two agents, a monitor, launcher, two wrappers, two ranks
    controller.kill()
    controller.wait(5)
    until(lambda: not tagged_with(tag), 8)
    again = trainer(tmp_path)(toy_plan(tmp_path, GOOD))
    assert outcome_of(again.folder).status == "passed"
