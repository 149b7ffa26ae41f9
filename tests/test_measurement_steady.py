"""Steady state: warm-up is left out, noise is borne, drift and chaos are refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.steady import MIN_STEADY_STEPS, find_steady


def noisy(n: int, level: float = 1.0, noise: float = 0.002, seed: int = 1) -> list[float]:
    source = random.Random(seed)
    return [level * (1 + source.gauss(0, noise)) for _ in range(n)]


def test_quiet_run_is_steady_from_the_start() -> None:
    steady = find_steady(noisy(100))
    assert (steady.reason, steady.first) == ("", 0)
    assert steady.median_s == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("slow", [1, 3, 7, 25])
def test_slow_first_steps_are_warm_up(slow: int) -> None:
    steady = find_steady([50.0] * slow + noisy(100))
    assert steady.reason == ""
    assert slow <= steady.first <= slow + 10
    assert steady.median_s == pytest.approx(1.0, rel=0.01)


def test_a_plateau_of_slow_steps_is_not_the_steady_state() -> None:
    steady = find_steady([3.0] * 40 + noisy(200))
    assert steady.first >= 40


def test_falling_step_times_are_left_out() -> None:
    steady = find_steady([1 + 4 * 0.9**i for i in range(60)] + noisy(200))
    assert steady.reason == ""
    assert 20 <= steady.first <= 70


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_noise_widens_the_tolerance(noise: float, seed: int) -> None:
    steady = find_steady(noisy(300, noise=noise, seed=seed))
    assert steady.reason == ""
    assert steady.tolerance > 0.01


def test_rare_stalls_stay_in_the_measurement() -> None:
    steps = noisy(200)
    steps[50] = steps[120] = 30.0
    steady = find_steady(steps)
    assert steady.reason == ""
    assert steady.first == 0


def test_a_last_third_that_slows_by_six_percent_is_drift() -> None:
    steady = find_steady(noisy(200) + noisy(100, level=1.06))
    assert "drifted by +6" in steady.reason
    assert steady.first == 300


def test_step_times_that_keep_growing_are_no_steady_state() -> None:
    assert find_steady([1.05**i for i in range(120)]).reason != ""


def test_two_levels_in_turn_are_borne_only_within_reason() -> None:
    assert find_steady(([1.0] * 10 + [3.0] * 10) * 10).reason != ""


@pytest.mark.parametrize(
    ("count", "share", "steady"),
    [
        pytest.param(26, 0.0025, True, id="few-steps-within-the-limit-of-drift"),
        pytest.param(26, 0.005, False, id="few-steps-beyond-it"),
        pytest.param(40, 0.0025, False, id="more-steps-beyond-it"),
        pytest.param(400, 0.0001, True, id="many-steps-within-it"),
    ],
)
def test_a_trend_is_borne_as_far_as_the_drift_it_makes(count: int, share: float, steady: bool) -> None:
    """Of long steps a run has few, and neighbouring blocks lie as far apart as its thirds."""
    steps = [time * (1 - share) ** i for i, time in enumerate(noisy(count, noise=0.0005))]
    assert (find_steady(steps).reason == "") is steady


@pytest.mark.parametrize("count", [24, 40, 60, 100])
@pytest.mark.parametrize("seed", range(5))
def test_a_trend_is_not_taken_for_noise(count: int, seed: int) -> None:
    """Fifteen percent from the first step to the last, however few blocks there are to see it by."""
    steps = [time * (1 + 0.15 * i / count) for i, time in enumerate(noisy(count, seed=seed))]
    assert find_steady(steps).reason


@pytest.mark.parametrize("told_for", [1, 5])
@pytest.mark.parametrize("seed", range(5))
def test_noise_of_few_steps_is_not_taken_for_a_trend(told_for: int, seed: int) -> None:
    """Also where a log tells one time for several steps."""
    steps = noisy(30, noise=0.04, seed=seed)
    told = [sum(steps[i : i + told_for]) / told_for for i in range(0, 30, told_for) for _ in range(told_for)]
    assert find_steady(told).reason == ""


@pytest.mark.parametrize("n", [0, 1, MIN_STEADY_STEPS - 1])
def test_too_few_steps(n: int) -> None:
    steady = find_steady([1.0] * n)
    assert steady.reason == f"{n} steps, fewer than {MIN_STEADY_STEPS}"


def test_as_few_as_allowed() -> None:
    assert find_steady([1.0] * MIN_STEADY_STEPS).reason == ""


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=120))
def test_any_times_give_an_answer(steps: list[float]) -> None:
    steady = find_steady(steps)
    assert 0 <= steady.first <= len(steps)
    assert (len(steps) - steady.first >= MIN_STEADY_STEPS) == (steady.reason == "")


@given(st.lists(st.floats(min_value=0.01, max_value=10), min_size=20, max_size=80), st.sampled_from([0.5, 2.0, 1024.0]))
def test_the_unit_of_time_does_not_matter(steps: list[float], scale: float) -> None:
    assert find_steady([step * scale for step in steps]).first == find_steady(steps).first
