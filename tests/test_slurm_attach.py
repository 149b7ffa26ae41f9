"""Whoever collects: which plans, how they are judged, and what a hostile hand is told."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.launch_toy import until
from tests.slurm_lab import PENDING, RUNNING, Lab

BRIEF = ("--time-budget", "1s")


def listed(lab: Lab) -> list[str]:
    """The ids in session.json."""
    return sorted(lab.toy.session()["selected"])


def results(lab: Lab) -> dict[str, str]:
    """The outcome of each plan in session.json."""
    return {one["id"]: one["outcome"]["status"] for one in lab.toy.session()["results"]}


def refused(lab: Lab, *words: str) -> str:
    """The one sentence of an attach that is refused."""
    assert lab.attach(*words) == 4, lab.toy.output
    (line,) = [line for line in lab.toy.output.splitlines() if line.startswith("ERROR")]
    assert "Traceback" not in lab.toy.output and "INTERNALERROR" not in lab.toy.output
    return line


def test_exactly_the_submitted_plans_are_collected(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit("--topology", "1x1", "-k", "2x1") == 0, lab.toy.output
    one = listed(lab)
    assert len(one) == 1 and "2x1" in one[0]
    assert lab.attach(*BRIEF) == 5, lab.toy.output
    assert listed(lab) == one and "1x1" not in lab.toy.output.partition("trainmark")[2]
    assert lab.attach("-k", "1x1") == 5
    assert "1x1" not in "".join(line for line in lab.toy.output.splitlines() if line.startswith("  "))
    assert listed(lab) == one


def test_k_selects_among_the_submitted_plans_and_forgets_none(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit("--topology", "1x1") == 0, lab.toy.output
    both = listed(lab)
    assert len(both) == 2
    assert lab.attach("-k", "2x1", *BRIEF) == 5, lab.toy.output
    assert listed(lab) == both
    assert lab.attach("--plan") == 0, lab.toy.output
    assert all(plan in lab.toy.output for plan in both)
    assert lab.attach("-n", "2", *BRIEF) == 5, lab.toy.output
    assert listed(lab) == both and set(results(lab).values()) == {"not_started"}


def test_what_the_device_hours_do_not_allow_is_not_submitted(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit("--max-device-hours", "0.0000001") == 0, lab.toy.output
    assert lab.slurm.calls("sbatch") == []
    assert lab.outcome() == "not_started: budget"
    assert lab.attach() == 5, lab.toy.output
    assert lab.outcome() == "not_started: budget"


def test_a_wrong_expression_leaves_the_session_as_it_was(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    before = {path: path.read_bytes() for path in lab.toy.results.rglob("*") if path.is_file()}
    assert "Wrong expression" in refused(lab, "-k", "and and")
    assert "Wrong expression" in refused(lab, "-k", "and and", "-n", "1")
    assert before == {path: path.read_bytes() for path in lab.toy.results.rglob("*") if path.is_file()}


def test_how_it_is_judged_was_said_when_it_was_submitted(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit("--fail-inconclusive") == 0
    lab.toy.write("job", "")
    shutil.rmtree(lab.toy.results / "jobs")
    assert lab.attach() == 1, lab.toy.output
    assert "it was never submitted" in lab.result()["outcome"]["reason"]
    (rerun,) = (line for line in lab.toy.output.splitlines() if "rerun: " in line)
    assert rerun.count("--fail-inconclusive") == 1


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff\xfe", b"[1]", b'{"schema_version": 99}', None])
def test_a_damaged_submission_is_one_sentence(lab: Lab, text: bytes | None) -> None:
    lab.toy.results.mkdir()
    path = lab.toy.results / "submitted.json"
    path.mkdir() if text is None else path.write_bytes(text)
    assert "submitted.json" in refused(lab)
    assert [path.name for path in lab.toy.results.iterdir()] == ["submitted.json"]


def test_another_checkout_and_a_case_that_is_gone(lab: Lab, tmp_path: Path) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    shutil.move(lab.toy.root / "suite" / "cases" / "toy", tmp_path / "toy")
    assert "is gone" in refused(lab)
    shutil.move(tmp_path / "toy", lab.toy.root / "suite" / "cases" / "toy")
    path = lab.toy.results / "submitted.json"
    path.write_text(path.read_text().replace(str(lab.toy.root / "suite"), "/elsewhere/suite"))
    assert "it was submitted from the checkout /elsewhere; collect it there" in refused(lab)


def test_a_second_one_is_told_that_somebody_collects(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    with lab.toy.start([*lab.attaching(), "--time-budget", "1h"]) as first:
        try:
            until(lambda: "Slurm job 4: PENDING" in lab.toy.output, 60)
            journal = (lab.toy.results / "journal-main.jsonl").read_bytes()
            assert "collected right now; wait for that to end" in refused(lab)
            assert (lab.toy.results / "journal-main.jsonl").read_bytes() == journal
        finally:
            first.terminate()
            assert first.wait(60) == 2
    assert lab.outcome() == "not_started: interrupted", "of the collecting, not of the job"
    assert "attach again later" in lab.result()["outcome"]["reason"]
    assert lab.attach(*BRIEF) == 5, lab.toy.output
    assert lab.outcome() == "not_started: budget"


def test_where_slurm_is_not_a_job_that_goes_on_is_not_waited_for(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    lab.toy.variables["PATH"] = os.environ["PATH"]
    if any(shutil.which(name) for name in ("sbatch", "scontrol")):
        lab.toy.variables["PATH"] = str(lab.toy.root)  # nothing at all is on it
    assert lab.attach() == 5, lab.toy.output
    assert "load Slurm's module" in lab.result()["outcome"]["reason"]


def test_a_plan_folder_that_was_deleted(lab: Lab) -> None:
    lab.slurm.script(RUNNING, job="4", runs=True)
    assert lab.submit() == 0
    until(lambda: list(lab.toy.results.glob("jobs/*/done.json")), 60)
    (folder,) = lab.toy.results.glob("toy-*")
    shutil.rmtree(folder)
    assert lab.attach() == 1, lab.toy.output
    assert lab.outcome() == "error: provision" and "was removed" in lab.result()["outcome"]["reason"]
    assert "Traceback" not in lab.toy.output


def test_a_link_is_followed_once(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    link = lab.toy.root / "latest"
    link.symlink_to(lab.toy.results)
    other = lab.toy.root / "other"
    other.mkdir()
    with lab.toy.start([*lab.attaching()[:-1], str(link), "--time-budget", "20s"]) as process:
        until(lambda: "Slurm job 4: PENDING" in lab.toy.output, 60)
        link.unlink()
        link.symlink_to(other)
        assert process.wait(120) == 5
    assert list(other.iterdir()) == []
    assert json.loads((lab.toy.results / "session.json").read_text())["session"]["exit_status"] == 5


def test_a_session_that_is_still_being_submitted_is_nobodys_to_collect(lab: Lab) -> None:
    """What had no job yet would be told as never submitted, in a folder that its job then finds taken."""
    lab.slurm.script(PENDING, job="4")
    program = lab.slurm.bin / "sbatch"
    real = program.rename(lab.slurm.bin / "sbatch-real")
    program.write_text(f"#!/bin/sh\nwhile [ ! -e '{lab.toy.root}/go' ]; do sleep 0.1; done\nexec '{real}' \"$@\"\n")
    program.chmod(0o755)
    with lab.toy.start(lab.toy.command("--submit", topology="2x1")) as submitting:
        try:
            until(lambda: (lab.toy.results / "jobs").is_dir(), 60)
            assert "it is being submitted or collected right now" in refused(lab)
        finally:
            lab.toy.write("go", "")
            assert submitting.wait(60) == 0
    assert not list(lab.toy.results.glob("toy-*/plan.json"))
    assert lab.attach(*BRIEF) == 5, lab.toy.output


def test_a_submitted_run_is_resumed_in_its_job(lab: Lab) -> None:
    lab.slurm.script(RUNNING, job="4", runs=True)
    assert lab.submit("--set", "steps=61") == 0
    assert lab.attach() == 0, lab.toy.output
    (run,) = lab.toy.results.glob("toy-*/r1")
    (run / "checkpoints" / "latest.pt").write_text("state")
    log = run / "harness.jsonl"
    log.write_text("".join(line for line in log.open() if '"event": "ended"' not in line))
    lab.toy.results = lab.toy.root / "again"
    lab.slurm.script(RUNNING, job="5", runs=True)
    assert lab.submit("--set", "steps=61", "--resume", str(run)) == 0, lab.toy.output
    until(lambda: list(lab.toy.results.glob("toy-*/r1/run.json")), 60)
    (again,) = lab.toy.results.glob("toy-*/r1/run.json")
    assert json.loads(again.read_text())["resume"] == str(run / "checkpoints" / "latest.pt")
    lab.attach()


def test_a_budget_of_jobs_that_own_their_lives_is_refused(lab: Lab) -> None:
    assert lab.submit("--time-budget", "1h") == 4
    assert "--time-budget 1h has no effect beside --submit; leave it out, and give it to --attach" in lab.toy.output
    assert not lab.toy.results.exists()
