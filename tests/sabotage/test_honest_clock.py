"""A busy host writes late, hears late from its device, and pauses; none of it makes an honest run void."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.drivers.timing import WindowClock
from suite.topology import Topology
from tests.run_folders import tiny_plan
from tests.sabotage.test_sound import Lines, outcome_of

ALONE = {"quality": tiny_plan().quality, "topology": Topology(nnodes=1, nproc=1)}
Change = Callable[[Lines], None]


def judged(tmp_path: Path, change: Change, **over: Any) -> str:
    return outcome_of(tmp_path, lambda lines, rank: change(lines), **(ALONE | over))


def windows(lines: Lines) -> Lines:
    return [line for line in lines if line["event"] == "steps"]


def with_ends(lines: Lines) -> None:
    """As the driver tells it: when each window ended, which the line itself may follow late."""
    for line in windows(lines):
        line["until"] = line["t"]


def by_device(lines: Lines) -> None:
    lines[0]["timer"] = "device_events"


def later(lines: Lines, first: int, seconds: float) -> None:
    """All lines from `first` on happen so much later."""
    for line in lines[first:]:
        line["t"] = round(line["t"] + seconds, 6)
        if "until" in line:
            line["until"] = round(line["until"] + seconds, 6)
        for key in ("t_mono", "t_wall"):
            if key in line:
                line[key] += seconds


@pytest.mark.parametrize("mode", ["converge", "throughput"])
@pytest.mark.parametrize("pause", [0.06, 0.4])
def test_a_pause_between_a_windows_end_and_its_line_is_none_between_windows(
    tmp_path: Path, mode: str, pause: float
) -> None:
    """The next window holds the pause, so it claims time from before the line was written."""

    def change(lines: Lines) -> None:
        with_ends(lines)
        one, two = windows(lines)[1:3]
        later(lines, lines.index(two), pause)
        one["t"] = round(one["t"] + pause, 6)
        two["step_s"][0] += pause
        two["window_s"] += pause

    assert judged(tmp_path, change, mode=mode).startswith("passed" if mode == "converge" else "inconclusive")


def test_a_device_that_is_heard_late_once_is_made_up_for_at_the_next_windows_end(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        by_device(lines)
        with_ends(lines)
        one, two = windows(lines)[1:3]
        for line, more in ((one, 0.05), (two, -0.05)):
            line["window_s"] += more
        for key in ("t", "until"):
            one[key] += 0.05

    assert judged(tmp_path, change).startswith("passed")


def test_one_clock_that_read_both_is_held_to_a_millisecond(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        windows(lines)[1]["window_s"] += 0.05

    assert "step_s adds up to" in judged(tmp_path, change)


def test_a_little_too_little_in_each_window_adds_up(tmp_path: Path) -> None:
    """A tenth of each step is not in its time: too little for one window, too much for several."""

    def change(lines: Lines) -> None:
        by_device(lines)
        for line in windows(lines):
            line["step_s"] = [seconds * 0.92 for seconds in line["step_s"]]
            line["data_s"] = [0.0 for _ in line["step_s"]]

    ended = judged(tmp_path, change)
    assert ended.startswith("failed invalid_measurement") and "step_s of all windows so far is" in ended


def test_an_end_after_its_line_is_no_end(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        windows(lines)[0]["until"] = windows(lines)[0]["t"] + 1

    assert "after the line itself" in judged(tmp_path, change)


def test_work_of_the_device_behind_the_end_of_each_window_is_told_beside_evaluations(tmp_path: Path) -> None:
    """One window between two evaluations: nothing touches it, and what it leaves out is seen at its own line."""

    def change(lines: Lines) -> None:
        with_ends(lines)
        for line in windows(lines):
            line["until"] = round(line["until"] - 0.5, 6)
            line["window_s"] -= 0.5
            line["step_s"] = [seconds - 0.05 for seconds in line["step_s"]]

    assert "steps were not timed to their end" in judged(tmp_path, change)


def test_work_of_the_device_behind_the_only_window_is_told(tmp_path: Path) -> None:
    def change(lines: Lines) -> None:
        with_ends(lines)
        only, *others = windows(lines)
        for line in others:
            lines.remove(line)
        lines[-1].update(step=10, samples=80)
        for line in lines:
            if line["event"] in ("checksum", "checkpoint_start", "checkpoint_stop"):
                line["step"] = 10
        only["until"] = round(only["until"] - 0.5, 6)
        only["window_s"] -= 0.5
        only["step_s"] = [seconds - 0.05 for seconds in only["step_s"]]

    assert "steps were not timed to their end" in judged(tmp_path, change, mode="throughput")


@pytest.mark.parametrize("pause", [0.0, 5.0])
def test_the_driver_says_when_a_window_ended_not_when_it_wrote_it(
    monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    now = [100.0]
    device = SimpleNamespace(synchronize=lambda: None, stamp=lambda: now[0], seconds=lambda one, two: two - one)
    clock, untils = WindowClock(device), []
    clock.start()
    for _ in range(2):
        clock.waited()
        now[0] += 2.0
        clock.stepped()
        now[0] += pause
        told = clock.close()
        untils.append((told["until"], told["window_s"]))
        clock.fetch()
    assert untils == [(102.0, 2.0), (104.0 + pause, 2.0 + pause)]
