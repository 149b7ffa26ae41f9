"""Facts that somebody published of a run, as metrics and as checks of a vendor's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.errors import UsageProblem
from suite.measure import measure
from suite.plan import Check
from suite.verdict import judge_folder
from tests.driver_toy import events, train
from tests.planning_toys import make_suite, plan_all, plan_one, write
from tests.run_folders import read_lines, tiny_plan, with_base, write_lines, write_plan_folder, write_run

EIGHT = "vendors/acme/toy/pytorch/config_A1x1x8.toml"
CHECK = """
[[check]]
name = "updates"
metric = "optimizer_steps"
op = "=="
value = "1024 / world"
source = "a guide"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def changed(folder: Path, event: str, **keys: Any) -> Any:
    """The measurement of a good run whose `event` lines of rank 0 say `keys`."""
    plan = tiny_plan()
    path = write_run(folder / "r1", plan, noise=0.0) / "events/rank0.jsonl"
    lines = read_lines(path)
    for line in lines:
        if line["event"] == event:
            line |= keys
            for key in [key for key, value in keys.items() if value is None]:
                del line[key]
    write_lines(path, lines)
    return measure(plan, folder / "r1")


def test_what_a_run_says_of_itself_is_a_metric(tmp_path: Path) -> None:
    run = changed(tmp_path, "steps", skipped=1)
    assert run.problem is None
    expected = {
        "trainable_parameters": 1000,
        "global_batch": 16,
        "steps": 120,
        "skipped_steps": 12,  # one in each of twelve windows
        "optimizer_steps": 108,
        "step_time_s": 0.1,
    }
    assert {name: run.metrics[name] for name in expected} == pytest.approx(expected)


def test_what_it_does_not_say_is_missing_and_not_zero(tmp_path: Path) -> None:
    run = changed(tmp_path, "init_stop", trainable=None)
    assert "trainable_parameters" not in run.metrics
    assert run.missing["trainable_parameters"].category == "not_observable"


def test_the_mean_step_counts_the_slow_start_that_the_median_leaves_out(tmp_path: Path) -> None:
    plan = tiny_plan()
    run = measure(plan, write_run(tmp_path / "r1", plan, noise=0.0, faults=["slow_start"]))
    assert run.metrics["step_time_median_s"] == pytest.approx(0.1)
    assert run.metrics["step_time_s"] == pytest.approx((117 * 0.1 + 3 * 5.0) / 120)


def test_a_vendors_check_joins_those_of_the_case(suite: Path) -> None:
    path = suite / EIGHT
    write(suite, {EIGHT: path.read_text(encoding="utf-8") + CHECK})
    plans = {str(plan.topology): {check.name: check for check in plan.checks} for plan in plan_all(suite)}
    assert plans["1x8"]["updates"].threshold == 128
    assert plans["1x8"]["updates"].required and plans["1x8"]["updates"].origin == EIGHT
    assert plans["1x8"]["size"].threshold == 64**2 * 8
    assert "updates" not in plans["1x1"] and "updates" not in plans["2x8"]


def test_a_vendor_changes_no_check_of_the_case(suite: Path) -> None:
    write(suite, {EIGHT: CHECK.replace("updates", "size")})
    with pytest.raises(UsageProblem, match=r"\[\[check\]\] size is a check of toy/pytorch, which no vendor changes"):
        plan_one(suite, "1x8")
    write(suite, {EIGHT: CHECK + CHECK})
    with pytest.raises(UsageProblem, match="have the same name; rename one"):
        plan_one(suite, "1x8")


@pytest.mark.parametrize(("step_s", "status"), [(0.100, "pass"), (0.104, "pass"), (0.110, "fail"), (0.090, "fail")])
def test_seconds_per_step_are_held_to_those_of_the_base(tmp_path: Path, step_s: float, status: str) -> None:
    """Two ranks with the base's work each: the efficiency is the base's seconds per step over ours."""
    equal = Check(
        name="step_time_as_1x1", metric="efficiency", op="==", threshold=1.0, required=True, tolerance=0.05, source="x"
    )
    plan = with_base(tiny_plan(), threshold=1.0)
    plan = plan.model_copy(update={"checks": (*plan.checks, equal)})
    folder = write_plan_folder(
        tmp_path / "plan", plan, runs=[{"step_s": step_s, "noise": 0.0}], base_runs=[{"step_s": 0.1, "noise": 0.0}] * 2
    )
    (check,) = [check for check in judge_folder(folder).checks if check.name == equal.name]
    assert (check.status, check.value) == (status, pytest.approx(0.1 / step_s, rel=1e-3))


def test_an_epoch_that_ends_with_the_run_is_told(tmp_path: Path) -> None:
    """The toy has 16 batches of 16 samples in an epoch; the run ends with its second one."""
    pytest.importorskip("torch")
    done = train(tmp_path, params={"max_samples": 512})
    assert done.returncode == 0, done.stderr
    assert [event["epoch"] for event in events(tmp_path) if event["event"] == "epoch_stop"] == [1, 2]


def test_a_count_that_is_missed_by_one_is_shown_in_full(tmp_path: Path) -> None:
    wrong = Check(name="size", metric="trainable_parameters", op="==", threshold=7733248.0, required=True, source="x")
    folder = write_plan_folder(tmp_path / "plan", tiny_plan(checks=(wrong,)))
    path = folder / "r1/events/rank0.jsonl"
    lines = read_lines(path)
    for line in lines:
        if line["event"] == "init_stop":
            line["trainable"] = 7733247
    write_lines(path, lines)
    (check,) = judge_folder(folder).checks
    assert (check.status, check.reason) == ("fail", "7733247 is not == 7733248")
