"""The statistics against worked values, and what they must never claim."""

from __future__ import annotations

from itertools import combinations
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports import statistics
from suite.convergence import convergence, olympic_mean, student_t

FEW = st.lists(st.sampled_from([1.0, 2.0, 2.5, 3.0, 7.0]), min_size=1, max_size=5)


@pytest.mark.parametrize(("runs", "p"), [(2, 1 / 3), (3, 0.1), (4, 2 / 70), (5, 2 / 252)])
def test_smallest_p_is_that_of_two_sides_apart(runs: int, p: float) -> None:
    low, high = [float(n) for n in range(runs)], [float(n) + 100 for n in range(runs)]
    assert statistics.smallest_p(runs, runs) == pytest.approx(p)
    assert statistics.mann_whitney(low, high) == pytest.approx(p)


def test_three_runs_can_never_be_significant_and_four_can() -> None:
    assert statistics.smallest_p(3, 3) > statistics.ALPHA > statistics.smallest_p(4, 4)
    assert statistics.runs_needed(1) == 4
    assert statistics.runs_needed(2) == 5, "two comparisons at once cost a run"


@given(FEW, FEW)
@settings(max_examples=60, deadline=None)
def test_the_exact_test_counts_what_brute_force_counts(old: list[float], new: list[float]) -> None:
    ranks = statistics._double_ranks([*old, *new])
    centre, observed = len(old) * (len(ranks) + 1), sum(ranks[: len(old)])
    sums = [sum(chosen) for chosen in combinations(ranks, len(old))]
    extreme = sum(abs(one - centre) >= abs(observed - centre) for one in sums)
    assert statistics.mann_whitney(old, new) == pytest.approx(extreme / len(sums))
    assert statistics.mann_whitney(old, new) == pytest.approx(statistics.mann_whitney(new, old))


def test_many_runs_go_over_to_the_normal_approximation_without_a_jump() -> None:
    old, new = [n + 0.0 for n in range(25)], [n + 6.5 for n in range(25)]
    exact = statistics.mann_whitney(old, new)
    ranks = statistics._double_ranks([*old, *new])
    assert statistics._normal_p(ranks, 25, sum(ranks[:25])) == pytest.approx(exact, rel=0.2)
    assert statistics.mann_whitney([1.0] * 40, [1.0] * 40) == 1.0, "all equal says nothing"


def test_holm_is_worked_by_hand() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_makes_a_p_smaller(ps: list[float]) -> None:
    assert all(after >= before for before, after in zip(ps, statistics.holm(ps)))


def test_the_bootstrap_brackets_the_ratio_and_forgets_the_order() -> None:
    old, new = [100.0, 101.0, 99.0, 100.5, 99.5], [97.0, 98.0, 96.5, 97.3, 97.1]
    interval = statistics.bootstrap_ratio(old, new)
    assert interval.low < median(new) / median(old) < interval.high < 0.99
    assert statistics.bootstrap_ratio(old[::-1], sorted(new)) == interval
    with pytest.raises(ValueError, match="above zero"):
        statistics.bootstrap_ratio([1.0, 0.0], new)


@pytest.mark.parametrize(
    ("probability", "freedom", "t"), [(0.95, 9, 1.8331), (0.975, 10, 2.2281), (0.95, 1, 6.3138), (0.95, 30, 1.6973)]
)
def test_students_t(probability: float, freedom: int, t: float) -> None:
    assert student_t(probability, freedom) == pytest.approx(t, abs=2e-4)


def test_reference_convergence_points_bound_both_sides() -> None:
    """The worked example of MLPerf's rules: ten references, a set of five runs, 15.21 epochs at least."""
    limits = convergence([16, 14, 16, 17, 16, 16, 15, 16, 15, 16], 5)
    assert limits.fewest == pytest.approx(15.21, abs=0.005)
    assert limits.most == pytest.approx(2 * 15.75 - 15.21, abs=0.01)
    with pytest.raises(ValueError, match="at least five"):
        convergence([16, 15], 5)


def test_olympic_mean_drops_one_on_each_side() -> None:
    assert olympic_mean([1.0, 2.0, 3.0, 100.0]) == 2.5
    with pytest.raises(ValueError, match="at least three"):
        olympic_mean([1.0, 2.0])


def test_what_can_be_detected_follows_spread_and_runs() -> None:
    steady = [99.5, 100.0, 100.5, 100.2, 99.8, 100.1, 99.9, 100.0]
    few = statistics.detectable(steady[:4], steady[:4])
    many = statistics.detectable(steady, steady)
    assert few is not None and many is not None and many < few < 0.02
    assert statistics.detectable(steady[:3], steady[:3]) is None, "three runs detect nothing"


def test_superiority_is_the_share_of_pairs_won() -> None:
    assert statistics.superiority([1, 2], [3, 4]) == 1.0
    assert statistics.superiority([1, 2], [1, 2]) == 0.5
