"""The interval of a speedup: worked by hand, and held against truths that are known."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from benchmarks.scaling_events import played_gate
from benchmarks.scaling_hosts import HOSTS, Host
from benchmarks.scaling_sim import BAND, coverage, gate, gate_plan
from suite.paired import apart, in_turns
from suite.verdict import judge_folder

GATES = 1500
REPEATED = {host.name: host for host in HOSTS}
T1, T2 = 12.7062, 4.3027
"""Of Student's t, 97.5 %, one and two degrees of freedom: any table has them."""


def test_one_run_takes_the_spread_of_its_two_bases() -> None:
    found = in_turns([100, 102], [190])
    half = T1 * math.sqrt(0.75) * math.log(1.02)
    assert found.freedom == 1
    assert found.value == pytest.approx(190 / math.sqrt(100 * 102))
    assert (found.low, found.high) == (
        pytest.approx(found.value / math.exp(half), rel=1e-4),
        pytest.approx(found.value * math.exp(half), rel=1e-4),
    )


def test_pairs_that_share_a_base_vary_as_independent_runs() -> None:
    found = in_turns([100, 100, 100, 100], [200, 202, 198])
    logs = [math.log(run / 100) for run in (200, 202, 198)]
    mean = sum(logs) / 3
    spread = sum((one - mean) ** 2 for one in logs) / 2
    half = T2 * math.sqrt(spread / 3 * (2 - 1 / 6) / (1.5 - 1 / 6))
    assert found.values == pytest.approx((2, 2.02, 1.98))
    assert (found.freedom, found.value) == (2, pytest.approx(math.exp(mean)))
    assert found.high == pytest.approx(math.exp(mean + half), rel=1e-4)


def test_an_even_drift_cancels() -> None:
    speeds = [1.01**place for place in range(7)]
    found = in_turns([100 * one for one in speeds[::2]], [180 * one for one in speeds[1::2]])
    assert (found.low, found.high) == (pytest.approx(1.8), pytest.approx(1.8))


def test_without_the_closing_base_each_run_has_the_one_before_it() -> None:
    found = in_turns([100, 110], [200, 231])
    assert (found.freedom, found.values) == (1, (pytest.approx(2), pytest.approx(2.1)))
    alone = in_turns([100], [200])
    assert (alone.value, alone.low, alone.high, alone.freedom) == (pytest.approx(2), None, None, 0)


def test_a_base_of_earlier_pools_both_spreads() -> None:
    found = apart([100, 102], [200, 204])
    half = T2 * math.sqrt(math.log(1.02) ** 2 / 2)
    assert (found.freedom, found.value) == (2, pytest.approx(2))
    assert found.low == pytest.approx(2 / math.exp(half), rel=1e-4)
    assert apart([100], [200]).low is None


@pytest.mark.parametrize("repeat", [2, 3, 5])
@pytest.mark.parametrize("name", REPEATED)
def test_the_interval_holds_the_truth_nineteen_times_of_twenty(name: str, repeat: int) -> None:
    chance, held = random.Random(f"{name} {repeat}"), 0
    for _ in range(GATES):
        speeds = [math.exp(one) for one in REPEATED[name].deviations(2 * repeat + 1, chance)]
        found = in_turns(speeds[::2], [1.74 * speed for speed in speeds[1::2]])
        assert found.low is not None and found.high is not None
        held += found.low <= 1.74 <= found.high
    assert BAND[0] <= held / GATES <= BAND[1]


def test_a_gate_without_repeats_is_calibrated_where_noise_is_all_there_is() -> None:
    """And tells warmth from noise by no means: it is then too careful, never too bold."""
    still, warm = HOSTS[0], REPEATED["warming"]
    plan, truth = gate_plan(1, 0.87), 0.87
    calm = coverage([gate(plan, truth, still, random.Random(seed)) for seed in range(600)], truth)
    assert calm.is_calibrated
    assert coverage([gate(plan, truth, warm, random.Random(seed)) for seed in range(200)], truth).share > BAND[1]


@pytest.mark.parametrize(("truth", "status"), [(0.78, "fail"), (0.87, "inconclusive"), (0.97, "pass")])
def test_the_judge_answers_where_the_interval_does(truth: float, status: str) -> None:
    result = gate(gate_plan(5, 0.87), truth, Host(name="calm", noise=0.005), random.Random(3))
    assert result.status == status
    assert (result.reason.startswith("noise: ") and "(95 %)" in result.reason) == (status == "inconclusive")
    assert result.baseline is not None and result.baseline["degrees_of_freedom"] == 4


def test_played_trainings_are_measured_as_what_was_stated(tmp_path: Path) -> None:
    """Through the events: two repeats on a host without noise, whose steps still sway."""
    plan = gate_plan(2, 0.5)
    result = played_gate(tmp_path / "gate", plan, 0.87, Host(name="exact", noise=0.0), random.Random(4))
    assert (result.status, result.value) == ("pass", pytest.approx(0.87, rel=0.02))


def test_an_equality_within_the_interval_is_open() -> None:
    """An interval that reaches over both sides of what is allowed proves nothing."""
    plan = gate_plan(1, 0.87)
    check = plan.checks[0].model_copy(update={"op": "==", "tolerance": 0.05})
    equal = plan.model_copy(update={"checks": (check,)})
    wide = gate(equal, 0.87, Host(name="wild", noise=0.05), random.Random(5))
    near = gate(equal, 0.87, Host(name="calm", noise=0.0001), random.Random(5))
    far = gate(equal, 1.2, Host(name="calm", noise=0.0001), random.Random(5))
    assert (wide.status, near.status, far.status) == ("inconclusive", "pass", "fail")


def test_a_base_of_earlier_is_never_paired(tmp_path: Path) -> None:
    """Though a bundle keeps it in base/, beside runs that it did not take turns with."""
    plan = gate_plan(2, 0.5)
    played_gate(tmp_path, plan, 0.87, Host(name="calm", noise=0.001), random.Random(6))
    assert freedom(tmp_path) == 1
    log = tmp_path / "harness.jsonl"
    log.write_text(log.read_text().replace('"reused": false', '"reused": true'))
    assert freedom(tmp_path) == 3  # two runs and three of the base, less two


def freedom(folder: Path) -> object:
    """Degrees of freedom of the speedup's interval."""
    (check,) = judge_folder(folder).checks
    assert check.baseline is not None
    return check.baseline["degrees_of_freedom"]
