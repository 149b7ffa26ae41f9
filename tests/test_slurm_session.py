"""`--submit` and `--attach` as their user sees them: jobs that own their lives, collected by a later pytest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults.checkout import MARK, ToyCheckout
from fixtures.faults.scheduler import FakeSlurm
from fixtures.node import processes
from tests.launch_toy import until

PENDING = {"JobState": "PENDING", "Reason": "Priority"}
RUNNING = {"JobState": "RUNNING", "Reason": "None", "NodeList": "f[1-2]", "TRES": "cpu=2,node=2"}

SITE = """
[launch]
launcher = "slurm"
[lease]
dir = "leases"
[slurm]
poll_s = 0.5
"""


class Lab:
    """A toy checkout, and a scheduler that is scripted."""

    def __init__(self, root: Path) -> None:
        self.toy = ToyCheckout(root / "a clone")
        self.toy.write("site.toml", SITE)
        self.slurm = FakeSlurm(root / "slurm")
        self.toy.variables["PATH"] = f"{self.slurm.bin}:{os.environ['PATH']}"

    def submit(self, script: str = "") -> int:
        """Two nodes, by --submit."""
        return self.toy.run(self.toy.command("--submit", topology="2x1", script=script))

    def attach(self, *more: str) -> int:
        """Collect them."""
        (self.toy.root / "output").unlink(missing_ok=True)
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", "--attach", str(self.toy.results)]
        return self.toy.run([*argv, *more])

    def result(self) -> dict[str, Any]:
        """The one result of session.json."""
        (result,) = self.toy.session()["results"]
        found: dict[str, Any] = result
        return found

    def outcome(self) -> str:
        """`status: category` of it."""
        outcome = self.result()["outcome"]
        return ": ".join(filter(None, (outcome["status"], outcome["category"])))


def marked(mark: str) -> list[int]:
    """Living processes that were started from the checkout."""
    return [
        process.pid
        for process in processes.snapshot().values()
        if process.state not in "ZX" and processes.environment(process.pid).get(MARK) == mark
    ]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.slurm.down()
        until(lambda: not marked(made.toy.mark))


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
    assert lab.submit("hang@20") == 0, lab.toy.output
    until(lambda: list(lab.toy.results.glob("toy-*/r1/events/rank1.jsonl")), 30)
    lab.toy.run([str(lab.slurm.bin / "scancel"), "4"])
    assert lab.attach() == 1, lab.toy.output
    assert lab.outcome() == "error: interrupted"
    assert "Slurm job 4 was cancelled" in lab.result()["outcome"]["reason"]
    (rerun,) = (line for line in lab.toy.output.splitlines() if "rerun: " in line)
    assert rerun.endswith("--vendor basalt --set script=hang@20 --site site.toml"), "as it was submitted"


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
        (["--submit", "--launcher", "local"], "--submit is for --launcher slurm"),
        (["--resume", "."], "neither a run's folder nor a plan's"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(lab: Lab, arguments: list[str], words: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite", "--vendor", "basalt", *arguments]
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
