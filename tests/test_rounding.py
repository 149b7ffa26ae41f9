"""A verdict is the same whichever Python adds its figures, and `rejudge` tells a change from rounding."""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import repeat
from operator import add
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.bundle import pack
from reports.rejudge import RESTS
from suite.errors import UsageProblem
from suite.rounding import alike, exact_sum
from suite.verdict import judge_folder
from tests.reports2_toy import real_session, session_with
from tests.run_folders import tiny_plan, with_base, write_plan_folder

TENTHS = [0.1] * 10
PARTS = ("checks", "metrics", "ledger", "curve", "runs")
"""Of a result: what holds figures that were computed."""


def one_by_one(values: Iterable[Any], start: Any = 0) -> Any:
    """`sum` until Python 3.11: rounded after each number."""
    return reduce(add, values, start)


def compensated(values: Iterable[Any], start: Any = 0) -> Any:
    """`sum` since Python 3.12, for floats."""
    each = list(values)
    return math.fsum(each) if each and all(isinstance(one, float) for one in each) else one_by_one(each, start)


def last_digit(value: float) -> float:
    return value and math.nextafter(value, math.inf)


def a_millionth(value: float) -> float:
    return value * (1 + 1e-6)


def edited(data: Any, change: Callable[[float], float]) -> Any:
    """Plain data with each of its floats changed."""
    if isinstance(data, dict):
        return {key: edited(value, change) for key, value in data.items()}
    if isinstance(data, list):
        return [edited(value, change) for value in data]
    return change(data) if isinstance(data, float) else data


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder of a plan that was run, with a monitor, and judged."""
    session, plan = real_session(tmp_path / "s", runs=[{"power_w": 100.1}])
    return session / plan.id


def rewrite(plan: Path, *parts: str, change: Callable[[float], float], only: str = "") -> None:
    """Change every figure in these parts of the stored result, or in one entry alone."""
    path = plan / "result.json"
    data = json.loads(path.read_text())
    for part in parts:
        if only:
            data[part][only] = edited(data[part][only], change)
        else:
            data[part] = edited(data[part], change)
    path.write_text(json.dumps(data))


def test_a_sum_is_rounded_once() -> None:
    assert exact_sum(TENTHS) == 1.0 != one_by_one(TENTHS)
    assert exact_sum([]) == 0.0
    assert exact_sum([1e308, 1e308]) == math.inf


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 1e-6, False),
        (1e-9, 1e-9 + 1e-15, False),
        (0.0, 1e-300, False),
        (1, 1, True),
        (1, 1.0, False),
        (1.0, 1, False),
        (True, 1, False),
        (10**12, 10**12 + 1, False),
        ("0.3", "0.3", True),
        ("0.3", 0.3, False),
        (None, None, True),
        (None, 0.0, False),
        ([1.0, "a"], (last_digit(1.0), "a"), True),
        ([1.0], [1.0, 1.0], False),
        ({"a": {"b": [0.3]}}, {"a": {"b": [0.1 + 0.2]}}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        ({"a": 1.0}, {"a": 1.0, "b": None}, False),
        ({"a": 1.0}, {"a": 1.000001}, False),
        ({}, [], False),
    ],
)
def test_only_the_rounding_of_floats_is_borne(one: object, other: object, same: bool) -> None:
    assert alike(one, other) is same
    assert alike(other, one) is same


def test_a_million_equal_times_are_borne_however_they_are_added() -> None:
    times = 1_000_000
    assert one_by_one(repeat(0.1, times)) != exact_sum(repeat(0.1, times))
    assert alike(one_by_one(repeat(0.1, times)), exact_sum(repeat(0.1, times)))


def test_a_rest_is_rounded_as_the_whole_it_is_left_of() -> None:
    slack = {"rest": 1e-9}
    assert alike({"rest": 0.0, "x": [1.0]}, {"rest": 1e-14, "x": [1.0]}, slack)
    assert alike({"rest": {"values": [0.0]}}, {"rest": {"values": [1e-14]}}, slack)
    assert not alike({"rest": 0.0}, {"rest": 1e-6}, slack)
    assert not alike({"x": 0.0}, {"x": 1e-14}, slack)


def test_records_are_held_field_by_field(recorded: Path) -> None:
    result = judge_folder(recorded)
    check = result.checks[1]
    assert isinstance(check.value, float)
    assert alike(check, check.model_copy(update={"value": last_digit(check.value)}))
    assert not alike(check, check.model_copy(update={"value": a_millionth(check.value)}))
    assert not alike(check, check.model_copy(update={"reason": "x"}))
    assert not alike(check, result.runs[0])


def test_a_verdict_is_the_same_under_either_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that adds up: two runs, a base that took turns, a monitor, waits for data, noise."""
    odd = {"power_w": 103.7, "noise": 0.0037, "step_s": 0.1013, "steps": 240}
    plan = with_base(tiny_plan(repeat=2, seeds=(1, 2)))
    write_plan_folder(tmp_path, plan, runs=[odd, odd | {"noise": 0.0041}], base_runs=[odd | {"ranks": 1}] * 3)
    verdicts = []
    for adding in (one_by_one, compensated):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "sum", adding)
            verdicts.append(judge_folder(tmp_path).model_dump_json(indent=1))
    assert verdicts[0] == verdicts[1]
    for figure in ("speedup", "data_wait_fraction", "power_mean_w", "throughput_train", "wall_s"):
        assert f'"{figure}": ' in verdicts[0], figure


def test_rejudge_bears_the_last_digit_of_every_figure(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (recorded / "result.json").read_text()
    rewrite(recorded, *PARTS, change=last_digit)
    assert json.loads((recorded / "result.json").read_text()) != json.loads(before)
    assert main(["rejudge", str(recorded)]) == 0
    assert "the same as the stored result.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("part", "only", "told"),
    [
        ("checks", "", "check time_to_train: stored pass"),
        ("metrics", "data_wait_fraction", "metric data_wait_fraction: stored 0.099"),
        ("metrics", "power_mean_w", "metric power_mean_w: stored 184.8"),
        ("metrics", "unaccounted_over", "metric unaccounted_over: stored -"),
        ("ledger", "", "ledger differs"),
        ("curve", "", "curve differs"),
        ("runs", "", "runs differs"),
    ],
)
def test_rejudge_tells_a_millionth(
    recorded: Path, capsys: pytest.CaptureFixture[str], part: str, only: str, told: str
) -> None:
    rewrite(recorded, part, only=only, change=a_millionth)
    assert main(["rejudge", str(recorded)]) == 1
    assert told in capsys.readouterr().out


def test_rejudge_tells_a_phase_that_is_gone(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded / "result.json"
    data = json.loads(path.read_text())
    del data["ledger"]["warmup" if "warmup" in data["ledger"] else "init"]
    path.write_text(json.dumps(data))
    assert main(["rejudge", str(recorded)]) == 1
    assert "ledger differs" in capsys.readouterr().out


@pytest.mark.parametrize(("moved", "code"), [(1e-13, 0), (1e-6, 1)])
def test_rejudge_bears_what_rounding_leaves_of_a_run_s_time(
    recorded: Path, capsys: pytest.CaptureFixture[str], moved: float, code: int
) -> None:
    """Where all time is accounted for, the old sum left 1e-14 s of it, which is no share of zero."""

    def shifted(data: Any) -> Any:
        if not isinstance(data, dict):
            return [shifted(one) for one in data] if isinstance(data, list) else data
        moves = {key: value + moved for key, value in data.items() if key in RESTS and isinstance(value, float)}
        return {key: shifted(value) for key, value in data.items()} | moves

    path = recorded / "result.json"
    path.write_text(json.dumps(shifted(json.loads(path.read_text()))))
    assert main(["rejudge", str(recorded)]) == code
    assert ("runs differs" in capsys.readouterr().out) is bool(code)


def test_a_bundle_is_made_of_what_rounding_alone_has_parted(recorded: Path, tmp_path: Path) -> None:
    session = recorded.parent
    for change, packs in ((last_digit, True), (a_millionth, False)):
        result = judge_folder(recorded)
        metrics = {
            name: metric.model_copy(update={"value": change(metric.value)}) for name, metric in result.metrics.items()
        }
        session_with(session, [result.model_copy(update={"metrics": metrics})])
        if packs:
            assert pack(session, tmp_path / "s.zip").plans == 1
            continue
        with pytest.raises(UsageProblem, match="its metrics cannot be had"):
            pack(session, tmp_path / "s.zip")
