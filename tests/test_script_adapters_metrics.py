"""What a log states of its own times becomes metrics of their own, beside what the harness timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.measure import measure
from tests.run_folders import read_lines, tiny_plan, write_lines, write_run


def logged(tmp_path: Path, stated: list[float | None], stop: dict[str, float] | None = None) -> dict[str, float]:
    """The metrics of a run with a log's own timings in its windows and at its end."""
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, ranks=1)
    path = folder / "events" / "rank0.jsonl"
    lines = read_lines(path)
    lines[0]["devices"] = 2
    windows = [line for line in lines if line["event"] == "steps"]
    for window, seconds in zip(windows, stated):
        if seconds is not None:
            window["stated_s"] = [seconds]
    if stop:
        lines[-1]["stated"] = stop
    write_lines(path, lines)
    run = measure(plan.model_copy(update={"evidence": "log"}), folder)
    assert run.problem is None
    return dict(run.metrics)


def test_step_timings_of_a_log_are_the_median_of_the_steady_ones(tmp_path: Path) -> None:
    metrics = logged(tmp_path, [99.0, *[13.4] * 40, *[13.6] * 2], {"step_s": 1.0})
    assert metrics["step_time_stated_s"] == 13.4


def test_without_timings_the_finished_bar_speaks(tmp_path: Path) -> None:
    metrics = logged(tmp_path, [], {"step_s": 12.72, "train_runtime_s": 150.2643})
    assert (metrics["step_time_stated_s"], metrics["train_runtime_s"]) == (12.72, 150.2643)


def test_a_log_that_states_nothing_has_neither(tmp_path: Path) -> None:
    assert not {"step_time_stated_s", "train_runtime_s"} & set(logged(tmp_path, []))


@pytest.mark.parametrize("wrong", [-1.0, "nan"])
def test_a_timing_that_is_none_is_an_error(tmp_path: Path, wrong: object) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, ranks=1)
    path = folder / "events" / "rank0.jsonl"
    lines = read_lines(path)
    next(line for line in lines if line["event"] == "steps")["stated_s"] = [wrong]
    write_lines(path, lines)
    problem = measure(plan, folder).problem
    assert problem is not None and problem.category == "invalid_measurement"
