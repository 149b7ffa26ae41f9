"""`--submit` and `--attach` as their user sees them: jobs that own their lives, collected by a later pytest."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.launch_toy import until
from tests.slurm_lab import PENDING, RUNNING, SITE, Lab


def test_a_submitted_plan_runs_by_itself_and_is_judged_later(lab: Lab) -> None:
    lab.slurm.script(RUNNING, job="4;cluster", runs=True)
    assert lab.submit() == 0, lab.toy.output
    assert "submitted as Slurm job 4; collect it with: pytest suite --attach" in lab.toy.output
    assert lab.outcome() == "not_started: interrupted"
    assert lab.attach() == 0, lab.toy.output
    assert lab.outcome() == "passed"
    result = lab.result()
    assert result["environment"]["scheduler"]["job_id"] == "4"
    assert result["environment"]["scheduler"]["state"] == "COMPLETED"
    assert result["ledger"]["queue"] > 0
    assert {run["host"] for run in [result["environment"]["preflight"]["node0"]]} == {"f1"}
    assert len(lab.slurm.calls("sbatch")) == 1 and lab.slurm.calls("scancel") == []
    assert lab.attach("--fail-inconclusive") == 0  # as often as one likes
    assert lab.outcome() == "passed"


def test_a_job_that_was_cancelled_under_its_runs(lab: Lab) -> None:
    lab.slurm.script(RUNNING, job="4", runs=True)
    assert lab.submit(script="hang@20") == 0, lab.toy.output
    until(lambda: list(lab.toy.results.glob("toy-*/r1/events/rank1.jsonl")), 30)
    lab.toy.run([str(lab.slurm.bin / "scancel"), "4"])
    assert lab.attach() == 1, lab.toy.output
    assert lab.outcome() == "error: interrupted"
    assert "Slurm job 4 was cancelled" in lab.result()["outcome"]["reason"]
    (rerun,) = (line for line in lab.toy.output.splitlines() if "rerun: " in line)
    words, site = shlex.split(rerun), str(lab.toy.root / "site.toml")
    assert words[-6:] == ["--vendor", "basalt", "--set", "script=hang@20", "--site", site], "as it was submitted"


def test_a_job_that_can_never_start_is_cancelled_by_whoever_collects(lab: Lab) -> None:
    lab.slurm.script({**PENDING, "Reason": "QOSMaxNodePerJobLimit"}, job="4")
    assert lab.submit() == 0
    assert lab.attach() == 5, lab.toy.output
    assert lab.outcome() == "not_started: unavailable"
    assert "QOSMaxNodePerJobLimit" in lab.result()["outcome"]["reason"]
    assert lab.slurm.calls("scancel") == [["scancel", "4"]]


def test_a_job_that_still_waits_is_left_alone(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    assert lab.attach("--time-budget", "2s") == 5, lab.toy.output
    assert lab.outcome() == "not_started: budget"
    assert "attach again later" in lab.result()["outcome"]["reason"]
    assert lab.slurm.calls("scancel") == []


def test_a_refused_submission_says_why_now_and_later(lab: Lab) -> None:
    lab.slurm.script(PENDING, refuse="Batch job submission failed: Invalid account")
    assert lab.submit() == 0
    assert "Invalid account" in lab.toy.output
    assert lab.outcome() == "not_started: unavailable"
    assert lab.attach() == 5
    assert "Invalid account" in lab.result()["outcome"]["reason"]


def test_no_value_of_the_environment_is_written_down(lab: Lab) -> None:
    lab.toy.variables["LAB_TOKEN"] = "s3cret-value"
    lab.toy.write("site.toml", SITE + 'export = ["PATH", "LAB_TOKEN"]\n')
    lab.slurm.script(RUNNING, job="4", runs=True)
    assert lab.submit() == 0
    assert lab.attach() == 0, lab.toy.output
    assert "--export=PATH,LAB_TOKEN" in lab.slurm.calls("sbatch")[0]
    texts = [path.read_bytes() for path in lab.toy.root.rglob("*") if path.is_file()]
    texts += [path.read_bytes() for path in lab.slurm.folder.rglob("*") if path.is_file()]
    assert not any(b"s3cret-value" in text for text in texts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attach", "."], "no submitted.json in it"),
        (["--attach", "nowhere"], "no such folder"),
        (["--attach", ".", "--site", "site.toml"], "leave --site out"),
        (["--attach", ".", "--submit"], "leave --submit out"),
        (["--vendor", "basalt", "--submit", "--launcher", "local"], "--submit is for --launcher slurm"),
        (["--vendor", "basalt", "--resume", "."], "neither a run's folder nor a plan's"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(lab: Lab, arguments: list[str], words: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", *arguments]
    assert lab.toy.run(argv) == 4
    (line,) = [line for line in lab.toy.output.splitlines() if words in line]
    assert line.startswith("ERROR") and "Traceback" not in lab.toy.output
    assert not (lab.toy.root / "results").exists()


def test_the_submitted_session_holds_what_was_settled(lab: Lab) -> None:
    lab.slurm.script(PENDING, job="4")
    assert lab.submit() == 0
    settled = json.loads((lab.toy.results / "submitted.json").read_text())
    assert settled["options"]["submit"] is False and settled["session"]["deadline_wall"] is None
    (folder,) = (lab.toy.results / "jobs").iterdir()
    assert json.loads((folder / "job.json").read_text())["job"] == "4"
    assert "slurm_standalone.py" in (folder / "job.sh").read_text()
