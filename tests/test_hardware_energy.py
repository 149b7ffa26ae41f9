"""Power that several devices share is counted once, and foreign work in the timed window voids the measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suite.contamination import contamination
from suite.measure import measure
from suite.monitor_log import summarise_monitor
from suite.outcome import Outcome
from suite.plan import Machine, Plan
from tests.run_folders import read_lines, tiny_plan, write_lines, write_run

SECONDS = range(0, 21)


def node(folder: Path, name: str, *watts: float | None, energy: bool = False, every: int = 1) -> None:
    """A monitor file of one node: each device draws its watts, and counts joules if `energy`."""
    lines = []
    for second in SECONDS[::every]:
        devices = [
            {"id": f"d{place}", "power_w": power, "energy_j": 500 + power * second if energy and power else None}
            for place, power in enumerate(watts)
        ]
        lines.append({"t_wall": 100.0 + second, "devices": devices})
    write_lines(folder / name, lines)


def summary(
    folder: Path, devices: int, scope: str = "unknown", per_board: int = 1
) -> tuple[float | None, float | None]:
    found = summarise_monitor(folder, 100.0, 120.0, devices, scope=scope, per_board=per_board)
    return found.power_w, found.energy_j


@pytest.mark.parametrize(
    ("watts", "scope", "per_board", "power"),
    [
        ((300.0, 300.0, 500.0, 500.0), "die", 1, 1600.0),
        ((300.0, 300.0, 500.0, 500.0), "die", 2, 1600.0),
        ((300.0, 300.0, 500.0, 500.0), "board", 2, 800.0),
        ((300.0, 300.0, 500.0, 500.0), "board", 1, 1600.0),
        ((300.0, None, 500.0, None), "board", 2, 800.0),
        ((300.0, None, None, None), "board", 2, None),
        ((300.0,), "board", 2, 300.0),
        ((900.0, 900.0, 900.0, 900.0), "node", 2, 900.0),
        ((300.0, None), "die", 1, None),
    ],
)
def test_a_board_or_node_is_counted_once(
    tmp_path: Path, watts: tuple[float | None, ...], scope: str, per_board: int, power: float | None
) -> None:
    node(tmp_path, "monitor.jsonl", *watts)
    got = summary(tmp_path, len(watts), scope, per_board)
    assert got == (pytest.approx(power), pytest.approx(power and power * 20))


def test_the_boards_of_two_nodes_are_not_mixed(tmp_path: Path) -> None:
    node(tmp_path, "monitor.jsonl", 300.0)
    node(tmp_path, "monitor-node1.jsonl", 400.0)
    assert summary(tmp_path, 2, "board", 2)[0] == pytest.approx(700.0)
    assert summary(tmp_path, 2, "node")[0] == pytest.approx(700.0)


def test_the_counter_is_preferred_and_its_source_and_period_are_told(tmp_path: Path) -> None:
    node(tmp_path, "monitor.jsonl", 300.0, 300.0, energy=True, every=4)
    found = summarise_monitor(tmp_path, 100.0, 120.0, 2, scope="board", per_board=2)
    assert (found.energy_source, found.period_s, found.energy_j) == ("counter", 4.0, pytest.approx(6000.0))
    node(tmp_path, "monitor.jsonl", 300.0, 300.0)
    assert summarise_monitor(tmp_path, 100.0, 120.0, 2).energy_source == "samples"
    assert summarise_monitor(tmp_path, 100.0, 120.0, 3).energy_source == ""


def test_the_machine_of_the_plan_decides(tmp_path: Path) -> None:
    board = Machine(name="A3", power_scope="board", devices_per_board=2)
    plan = tiny_plan(machine_facts=board)
    run = measure(plan, write_run(tmp_path / "r1", plan, power_w=300.0))
    assert run.metrics["power_mean_w"] == pytest.approx(300.0, rel=0.1)
    power = run.environment["power"]
    assert power == {"scope": "board", "devices_per_board": 2, "energy_source": "samples", "period_s": 1.0}


def with_foreign(folder: Path, plan: Plan, second: float, foreign: Any) -> Path:
    """A good run, in which the monitor sees something on device gpu1 at that wall time."""
    run = write_run(folder / "r1", plan, power_w=300.0)
    lines = read_lines(run / "monitor.jsonl")
    for line in lines:
        if abs(line["t_wall"] - second) < 0.5:
            line["devices"][1]["foreign"] = foreign
    write_lines(run / "monitor.jsonl", lines)
    return run


def test_foreign_work_in_the_timed_window_voids_the_measurement(tmp_path: Path) -> None:
    plan = tiny_plan(exclusive=True)
    run = measure(plan, with_foreign(tmp_path, plan, 2008.0, [{"pid": 7, "name": "game"}, {"pid": 8, "name": "x"}]))
    assert run.problem is not None
    assert (run.problem.status, run.problem.category) == ("failed", "invalid_measurement")
    assert run.problem.reason == (
        "contaminated: another process used device gpu1 in the timed window: game (pid 7) and 1 more"
    )
    assert run.metrics == {}
    assert run.curve, "what the run did is still shown"


@pytest.mark.parametrize(
    ("exclusive", "second", "foreign"),
    [
        (False, 2008.0, [{"pid": 7, "name": "game"}]),
        (True, 1998.0, [{"pid": 7, "name": "game"}]),
        (True, 2008.0, []),
        (True, 2008.0, None),
        (True, 2008.0, "game"),
    ],
)
def test_what_does_not_void_it(tmp_path: Path, exclusive: bool, second: float, foreign: Any) -> None:
    plan = tiny_plan(exclusive=exclusive)
    assert measure(plan, with_foreign(tmp_path, plan, second, foreign)).problem is None


def test_a_strange_entry_is_still_foreign_work(tmp_path: Path) -> None:
    line = {"t_wall": 5.0, "devices": [{"id": "d0", "foreign": [3]}]}
    (tmp_path / "monitor.jsonl").write_text(json.dumps(line) + "\n" + '{"t_wall": 6')
    reason = "contaminated: another process used device d0 in the timed window: unnamed (pid unknown)"
    assert contamination(tmp_path, (4.0, 6.0)) == Outcome(
        status="failed", category="invalid_measurement", reason=reason
    )
