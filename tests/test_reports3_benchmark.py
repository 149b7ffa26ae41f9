"""pytest-benchmark's own session data: the measured steps of a plan, without a second launch."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fixtures.faults.checkout import ToyCheckout
from fixtures.testing import MakeCheckout, toy_checkout
from reports.benchmark_session import Clock

__all__ = ["toy_checkout"]

WITH = "--benchmark-json=b.json"


def benchmarks(checkout: ToyCheckout) -> list[dict[str, Any]]:
    """What pytest-benchmark wrote."""
    path = checkout.root / "b.json"
    return list(json.loads(path.read_text())["benchmarks"]) if path.is_file() else []


def steps_of(run: Path) -> list[float]:
    """Every step time of a run, read without the project's reader."""
    lines = [json.loads(line) for line in (run / "events/rank0.jsonl").read_text().splitlines()]
    return [step for line in lines if line["event"] == "steps" for step in line["step_s"]]


def test_the_measured_steps_are_its_rounds(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    assert checkout.run(checkout.command(WITH, "--repeat", "2")) == 0, checkout.output
    (found,) = benchmarks(checkout)
    (plan,) = checkout.results.glob("*/plan.json")
    assert found["fullname"].endswith(f"::test_toy[{plan.parent.name}]")
    assert (found["params"], found["extra_info"]["outcome"]) == ({"plan": plan.parent.name}, "passed")
    assert found["options"]["timer"] == "trainmark", "no address of an object: two sessions must agree"
    runs = sorted(path.name for path in plan.parent.glob("r*") if path.is_dir())
    assert runs == ["r1", "r2"], "each run was launched once"
    steps = [step for run in runs for step in steps_of(plan.parent / run)]
    data = found["stats"]["data"]
    assert 0 < len(data) <= len(steps)
    told = {round(step, 9) for step in steps}
    assert all(any(abs(one - step) < 1e-9 for step in told) for one in data), "nothing but what was measured"
    assert found["stats"]["mean"] == pytest.approx(fmean(data))
    assert "benchmark: 1 tests" in checkout.output


def test_a_plan_that_misses_its_target_after_measuring_stays_in(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    assert checkout.run(checkout.command(WITH, "--set", "steps=40")) == 1, checkout.output
    (found,) = benchmarks(checkout)
    assert found["extra_info"]["outcome"] == "failed"


def test_a_lost_run_has_no_rounds(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    assert checkout.run(checkout.command(WITH, script="leave=1@20")) == 1, checkout.output
    assert all(found["stats"]["rounds"] for found in benchmarks(checkout))
    assert "INTERNALERROR" not in checkout.output and checkout.session()["results"][0]["outcome"]["status"] == "error"


@pytest.mark.parametrize("arguments", [(), (WITH, "-n", "2")], ids=["not asked", "with workers"])
def test_otherwise_nothing_is_recorded_and_nothing_changes(
    toy_checkout: MakeCheckout, arguments: tuple[str, ...]
) -> None:
    checkout = toy_checkout()
    assert checkout.run(checkout.command(*arguments)) == 0, checkout.output
    assert benchmarks(checkout) == [] and "benchmark: 1 tests" not in checkout.output
    assert checkout.session()["results"][0]["outcome"]["status"] == "passed"


def test_a_test_may_name_the_fixture_itself(toy_checkout: MakeCheckout) -> None:
    checkout = toy_checkout()
    text = "def test_toy(plan, train, judge, benchmark):\n    judge(train(plan))\n"
    checkout.write("suite/cases/toy/pytorch/test_toy.py", text)
    assert checkout.run(checkout.command()) == 0, checkout.output
    assert "benchmark: 1 tests" in checkout.output


def test_the_clock_moves_by_what_was_measured_and_no_further() -> None:
    clock = Clock()
    clock.load([0.5, 0.25])
    seen = []
    for _ in range(3):
        clock.step()
        seen.append(clock())
    assert seen == [0.5, 0.75, 0.75]
