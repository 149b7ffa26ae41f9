"""`--plan --detect`: repeats from the noise that is known, and the word when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.options import Detect
from fixtures.plan_text import detect_lines
from reports.baseline_store import propose
from reports.json_report import write_result
from suite.plan import Plan
from suite.result import Result
from suite.spread import known_spread
from tests.reports2_toy import result_with, session_with
from tests.reports_toy import toy_plan

TIMES = (600.0, 630.0, 570.0)
"""Standard deviation 30, mean 600: 5 %."""


def earlier(root: Path, name: str, *times: float, **plan: object) -> Result:
    """A session below `root` whose runs took these times."""
    result = result_with(time=times, plan=plan)
    session_with(root / name, [result])
    write_result(result, root / name / result.id)
    return result


def lines(plan: Plan, *known: Path, stated: float | None = None) -> list[str]:
    return list(detect_lines(Detect(difference=0.05, spread=stated), [plan], known))


def test_the_spread_of_earlier_results_decides(tmp_path: Path) -> None:
    """15.7 (5 % / 5 %)^2 = 15.7, so 16 on each side."""
    earlier(tmp_path, "20260101", *TIMES)
    [line] = lines(toy_plan("toy"), tmp_path)
    assert line.startswith("toy-pytorch-cpu-host-mini-1x1: to detect a difference of 0.05 (5.00%)")
    assert "--repeat 16 on each (spread between runs 5.00%, measured over 3 runs: 20260101)" in line


def test_results_of_one_plan_count_together(tmp_path: Path) -> None:
    for day, time in enumerate(TIMES, 1):
        earlier(tmp_path, f"2026010{day}", time)
    (tmp_path / "latest").symlink_to("20260103")
    spread = known_spread(toy_plan("toy"), [tmp_path])
    assert spread is not None and (spread.runs, round(spread.variation, 6)) == (3, 0.05)
    assert spread.source == "3 measurements, the last of them 20260103"


def test_a_baseline_knows_the_spread(tmp_path: Path) -> None:
    earlier(tmp_path / "s", "20260101", *TIMES)
    propose(tmp_path / "s" / "20260101", tmp_path / "baselines", today="2026-01-31")
    [line] = lines(toy_plan("toy"), tmp_path / "baselines")
    assert "measured over 3 runs: toy-pytorch-cpu-host-mini-1x1-" in line and "another" not in line
    [line] = lines(toy_plan("toy", plan_digest="other"), tmp_path / "baselines")
    assert "of another plan_digest" in line


def test_unknown_noise_is_said(tmp_path: Path) -> None:
    [line] = lines(toy_plan("toy"), tmp_path, tmp_path / "nowhere")
    assert "--repeat 31 on each (spread between runs 7.00%, assumed for time-to-train: no baseline" in line
    assert "no earlier result knows it" in line


@pytest.mark.parametrize("times", [(600.0,), (600.0, 660.0)])
def test_one_or_two_runs_know_no_spread(tmp_path: Path, times: tuple[float, ...]) -> None:
    earlier(tmp_path, "20260101", *times)
    assert known_spread(toy_plan("toy"), [tmp_path]) is None


def test_another_machine_task_or_a_missed_target_knows_nothing(tmp_path: Path) -> None:
    earlier(tmp_path, "20260101", *TIMES)
    for over in ({"machine": "H9"}, {"preset": "full"}, {"mode": "throughput"}):
        assert known_spread(toy_plan("toy", **over), [tmp_path]) is None, over
    (tmp_path / "20260101" / "toy-pytorch-cpu-host-mini-1x1" / "result.json").write_text("{")
    assert known_spread(toy_plan("toy"), [tmp_path]) is None, "a file that is broken is passed over"


def test_a_stated_spread_wins(tmp_path: Path) -> None:
    earlier(tmp_path, "20260101", *TIMES)
    [line] = lines(toy_plan("toy"), tmp_path, stated=0.03)
    assert "--repeat 6 on each (spread between runs 3.00%, stated)" in line
