"""Scripts that are seen by their log alone: run unchanged, read by adapters, judged for what a log can show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reports.gate import gate
from reports.json_report import read_session
from suite.result import CheckResult, Result
from tests.launch_toy import tagged_with
from tests.reports2_toy import session_with
from tests.script_toy import TRAINS, events, judged, rank_log, script_plan


def check(result: Result, name: str) -> CheckResult:
    """One of its checks."""
    return next(check for check in result.checks if check.name == name)


def test_a_script_is_judged_by_what_its_log_shows(tmp_path: Path) -> None:
    plan = script_plan(tmp_path, words=("--seed", "{seed}", "--out", "{run_dir}/out", "--case={case_dir}", "{other}"))
    result = judged(tmp_path, plan)
    assert result.outcome.status == "passed", result.outcome
    assert check(result, "quality").value == pytest.approx(6 / 7)
    assert check(result, "time_to_train").status == "pass"
    assert result.metrics["steps"].value == 6
    assert result.metrics["samples_trained"].value == 96
    assert result.metrics["trainable_parameters"].value == 7_733_248
    assert result.metrics["global_batch"].value == 16
    assert "words: ['--seed', '1', '--out', '" in rank_log(tmp_path)
    run_dir = next(iter(tmp_path.glob("session/*/r1")))
    assert f"'{run_dir}/out', '--case={plan.case_dir}', '{{other}}']" in rank_log(tmp_path, 1)
    assert tagged_with(f"toy-{os.getpid()}") == []


def test_what_a_log_cannot_show_is_not_observable(tmp_path: Path) -> None:
    result = judged(tmp_path, script_plan(tmp_path))
    in_sync = check(result, "ranks_in_sync")
    assert in_sync.status == "inconclusive"
    assert in_sync.reason.startswith("not_observable: ")
    assert not set(result.metrics) & {"throughput_train", "throughput_core", "step_time_median_s", "rank_spread"}
    assert result.ledger["unaccounted_s"] < 1.0


def test_a_log_never_gates(tmp_path: Path) -> None:
    result = judged(tmp_path, script_plan(tmp_path))
    decided = gate(read_session(session_with(tmp_path / "told", [result])), ())
    (plan,) = decided.plans
    assert (result.outcome.status, plan.standing) == ("passed", "shown")
    assert "never gates: evidence log" in plan.reason
    assert decided.code == 2, "nothing here can say that the change is good"


def test_every_rank_says_who_it_is_and_how_it_left(tmp_path: Path) -> None:
    judged(tmp_path, script_plan(tmp_path))
    for rank in range(2):
        told = events(tmp_path, rank)
        header = told[0]
        assert (header["rank"], header["world_size"], header["local_rank"], header["node_rank"]) == (rank, 2, rank, 0)
        assert header["timer"] == "log"
        assert (told[-1]["event"], told[-1]["status"]) == ("run_stop", "success")
    assert {line["event"] for line in events(tmp_path, 1)} == {"header", "run_stop"}


def test_a_throughput_that_is_required_cannot_be_met_by_a_log(tmp_path: Path) -> None:
    plan = script_plan(tmp_path)
    fast = plan.checks[0].model_copy(update={"name": "throughput", "metric": "throughput_train", "threshold": 1.0})
    result = judged(tmp_path, plan.model_copy(update={"checks": (*plan.checks, fast)}))
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "not_observable")


@pytest.mark.parametrize(
    ("env", "status", "category", "words"),
    [
        ({"STEPS": "0"}, "error", "crash", "status 0"),
        ({"STEPS": "3"}, "error", "crash", "short of the bar's end"),
        ({"STATUS": "3"}, "error", "crash", "status 3"),
        ({"BATCH": "8"}, "error", "environment", "1 ranks in its batch sizes where the plan has 2"),
        ({"BATCH": "20"}, "error", "environment", "global batch of 20 where the plan has 16"),
        ({"START": "1"}, "error", "environment", "world size is 1 where the plan says 2"),
    ],
    ids=["trained nothing", "stopped early", "left with 3", "half the ranks", "another batch", "one process"],
)
def test_a_script_that_goes_wrong_is_never_green(
    tmp_path: Path, env: dict[str, str], status: str, category: str, words: str
) -> None:
    result = judged(tmp_path, script_plan(tmp_path, env=env))
    assert (result.outcome.status, result.outcome.category) == (status, category), result.outcome
    assert words in result.outcome.reason
    assert all(check.status != "pass" for check in result.checks)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_script_is_killed_is_named(tmp_path: Path, rank: int) -> None:
    result = judged(tmp_path, script_plan(tmp_path, env={"DIES": str(rank)}))
    assert (result.outcome.status, result.outcome.category, result.outcome.rank) == ("error", "crash", rank)
    assert result.outcome.reason == f"rank {rank} was killed by SIGKILL (signal 9)"
    assert tagged_with(f"toy-{os.getpid()}") == []


def test_a_script_that_prints_success_and_trains_nothing_is_no_success(tmp_path: Path) -> None:
    liar = "print('Training completed. 100% accuracy {\\'eval_accuracy\\': 1.0}', flush=True)"
    result = judged(tmp_path, script_plan(tmp_path, liar))
    assert (result.outcome.status, result.outcome.category) == ("error", "crash")
    assert "shows no step of training" in result.outcome.reason


def test_a_script_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    plan = script_plan(tmp_path)
    (plan.case_dir / "script.py").unlink()
    result = judged(tmp_path, plan)
    assert result.outcome.status == "error"
    assert "script.py does not exist" in result.outcome.reason


def test_a_script_cannot_be_broken_on_purpose(tmp_path: Path) -> None:
    result = judged(tmp_path, script_plan(tmp_path, sabotage="labels_shuffled"))
    assert result.outcome.status == "error"
    assert "sabotage = 'labels_shuffled': a script of others knows nothing of it" in result.outcome.reason


def test_an_unknown_adapter_is_a_sentence(tmp_path: Path) -> None:
    plan = script_plan(tmp_path)
    assert plan.script is not None
    script = plan.script.model_copy(update={"adapters": ("hf_trainr",)})
    result = judged(tmp_path, plan.model_copy(update={"script": script}))
    assert "no adapter is called 'hf_trainr'" in result.outcome.reason


def test_output_that_a_grandchild_holds_open_ends_the_run_all_the_same(tmp_path: Path) -> None:
    holds = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n"
    result = judged(tmp_path, script_plan(tmp_path, holds + TRAINS))
    assert result.outcome.status == "passed", result.outcome
    assert tagged_with(f"toy-{os.getpid()}") == []
