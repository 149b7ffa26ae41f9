"""Reference convergence points: worked limits, interpolation and pruning, and both sides of the check in a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.catalog import load_catalog
from suite.convergence import Reference, convergence, limits, reference_at, trimmed
from suite.convergence_checks import BOTH_SIDES
from suite.errors import UsageProblem
from suite.plan import Check, Plan, Request
from suite.result import Result
from suite.selection import plans
from suite.verdict import judge_folder
from tests.driver_toy import ROOT
from tests.line_toy import line_checkout
from tests.run_folders import tiny_plan, write_plan_folder

EIGHT = (8000.0, 6400.0, 6400.0, 6400.0, 6400.0, 4800.0, 6400.0, 8000.0)
POINTS = """
[[preset.mini.reference_points]]
global_batch = 16
samples = [768, 1024, 1024, 1024, 1280, 1024]
source = "six seeds"
"""


def test_the_worked_example_of_the_rules() -> None:
    """Ten reference runs: after trimming 15.75, spread 0.43; ten runs of one's own may not be below 15.37."""
    reference = trimmed([16, 14, 16, 17, 16, 16, 15, 16, 15, 16])
    assert (reference.mean, round(reference.spread, 2), reference.runs) == (15.75, 0.43, 8)
    assert convergence([16, 14, 16, 17, 16, 16, 15, 16, 15, 16], 10).fewest == pytest.approx(15.369, abs=1e-3)


def test_the_gap_between_evaluations_widens_the_limits() -> None:
    """Where all reference runs met the target at one evaluation, they show no spread, and it is not zero."""
    same = trimmed([6400.0] * 8)
    assert limits(same, 5) == (6400.0, 6400.0)
    fewest, most = limits(same, 5, resolution=1600.0)
    assert (round(6400 - fewest), round(most - 6400)) == (619, 619)


def test_a_batch_between_two_points_has_what_lies_between() -> None:
    points = [(32, Reference(1000.0, 10.0, 6)), (64, Reference(1400.0, 30.0, 8))]
    assert reference_at(points, 48) == Reference(1200.0, 20.0, 6)
    assert reference_at(points, 32) == points[0][1]
    assert reference_at(points, 8) == points[0][1], "below the smallest its own holds"
    assert reference_at(points, 65) is None, "above the largest nobody knows"
    assert reference_at([], 32) is None


def test_a_bad_reference_does_not_loosen_the_limits() -> None:
    slow = [(32, Reference(1000.0, 10.0, 6)), (48, Reference(5000.0, 10.0, 6)), (64, Reference(1400.0, 10.0, 6))]
    assert reference_at(slow, 48) == Reference(1200.0, 10.0, 6)


def checks_of(plan: Plan) -> dict[str, Check]:
    return {check.name: check for check in plan.checks if check.name in BOTH_SIDES}


@pytest.mark.parametrize(("repeat", "mode", "names"), [
    (5, "converge", {"too_good", "too_slow"}), (3, "converge", {"too_good", "too_slow"}), (2, "converge", set()),
    (5, "throughput", set()),
])  # fmt: skip
def test_a_plan_has_the_checks_where_they_can_be_judged(repeat: int, mode: Any, names: set[str]) -> None:
    request = Request(vendor="cpu", models=("glm",), topologies=("1x1",), presets=("mini",), repeat=repeat, mode=mode)
    (plan,) = plans(load_catalog(ROOT / "suite"), request)
    assert set(checks_of(plan)) == names
    if repeat == 5 and names:
        fewest, most = limits(trimmed(EIGHT), 5, 1600.0)
        assert checks_of(plan)["too_good"].threshold == pytest.approx(fewest, abs=1e-3)
        assert checks_of(plan)["too_slow"].threshold == pytest.approx(most, abs=1e-3)
        assert "global batch of 32" in checks_of(plan)["too_good"].source


def test_two_points_of_one_batch_are_refused(tmp_path: Path) -> None:
    line_checkout(tmp_path / "c", more=POINTS + POINTS)
    request = Request(vendor="cpu", models=("line",), topologies=("1x1",), presets=("mini",), repeat=3)
    with pytest.raises(UsageProblem, match=r"two \[\[reference_points\]\] have global_batch = 16"):
        plans(load_catalog(tmp_path / "c" / "suite"), request)


def test_too_few_reference_runs_are_refused(tmp_path: Path) -> None:
    line_checkout(tmp_path / "c", more=POINTS.replace(", 1024, 1024, 1280, 1024", ""))
    with pytest.raises(UsageProblem, match=r"line/pytorch/case.toml.*reference_points"):
        plans(load_catalog(tmp_path / "c" / "suite"), Request(vendor="cpu", models=("line",)))


def judged(folder: Path, met_at: list[int]) -> Result:
    """Runs that met the target at these evaluations, 480 samples apart, held to a reference that needed three."""
    fewest, most = limits(trimmed([960.0, 1440.0, 1440.0, 1440.0, 1440.0, 1920.0]), len(met_at), 480.0)
    shared = {"metric": "samples_to_target", "unit": "sample", "required": True, "source": "six seeds"}
    both = [
        Check.model_validate({"name": "too_good", "op": ">=", "threshold": fewest, **shared}),
        Check.model_validate({"name": "too_slow", "op": "<=", "threshold": most, **shared}),
    ]
    plan = tiny_plan(repeat=len(met_at), seeds=tuple(range(1, len(met_at) + 1)))
    plan = plan.model_copy(update={"checks": (*plan.checks, *both)})
    write_plan_folder(folder, plan, runs=[{"quality": [0.1] * (n - 1) + [0.9] * (6 - n), "steps": 150} for n in met_at])
    return judge_folder(folder)


VERDICTS = [
    ([3, 3, 3, 3, 3], "passed", ""),
    ([3, 1, 5, 3, 3], "passed", ""),  # the olympic mean drops one on each side
    ([1, 1, 1, 1, 1], "failed", "too_good"),
    ([5, 5, 5, 5, 5], "failed", "check"),
]


@pytest.mark.parametrize(("met_at", "status", "category"), VERDICTS, ids=["as usual", "one odd pair", "fast", "slow"])
def test_both_sides_are_held(tmp_path: Path, met_at: list[int], status: str, category: str) -> None:
    result = judged(tmp_path / "plan", met_at)
    assert (result.outcome.status, result.outcome.category) == (status, category), result.outcome.reason
    values = {check.name: check for check in result.checks}
    assert result.metrics["samples_to_target"].values == tuple(480.0 * n for n in met_at)
    assert values["too_good"].value == values["too_slow"].value == 480.0 * sorted(met_at)[2]
    assert values["too_good"].status == ("fail" if category == "too_good" else "pass")
    assert values["too_slow"].status == ("fail" if category == "check" else "pass")


def test_a_lost_run_leaves_both_checks_unmeasured(tmp_path: Path) -> None:
    plan = tiny_plan(repeat=3, seeds=(1, 2, 3))
    shared = {"metric": "samples_to_target", "op": ">=", "threshold": 1.0, "required": True}
    plan = plan.model_copy(update={"checks": (*plan.checks, Check.model_validate({"name": "too_good", **shared}))})
    write_plan_folder(tmp_path / "plan", plan, runs=[{}, {}, {"faults": ["crash"]}])
    (check,) = [check for check in judge_folder(tmp_path / "plan").checks if check.name == "too_good"]
    assert check.status == "inconclusive" and check.reason.startswith("not_measured")
