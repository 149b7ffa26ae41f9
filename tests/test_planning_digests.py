"""Digests, comparability and the cost: what changes them, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.digest import comparability_key
from suite.estimate import cost
from tests.planning_toys import CASE, make_suite, plan_one, refusal, write

CONFIG = "vendors/acme/toy/pytorch/config_A1x1x8.toml"
SPEEDUP = '[threshold.speedup]\nvalue = 6.4\nsource = "measured"\ntolerance = 0.05\n'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


HARMLESS = {
    "cases/toy/pytorch/train.py": '"""Says what it does."""\n\nRATE = 1  # fast\n',
    "cases/toy/pytorch/README.md": "measured: 3",
    "cases/toy/pytorch/test_toy.py": "def test_toy(): ...",
    "cases/toy/pytorch/case.toml": "# note\n"
    + CASE.replace("the paper", "the book").replace("hidden ** 2", "hidden ** 3"),
    "vendors/acme/README.md": "words",
    "drivers/pytorch/loop.py": "def run():\n    '''Runs.'''\n    return 1\n",
    CONFIG: "train_batch_size = 16\nlr = 1.0\n" + SPEEDUP,
}
TELLING = {
    "cases/toy/pytorch/train.py": "RATE = 2\n",
    "cases/toy/pytorch/case.toml": CASE.replace("value = 0.8", "value = 0.79"),
    "cases/toy/pytorch/data.toml": "",
    "cases/toy/pytorch/model.py": "SIZE = 1\n",
    "drivers/pytorch/loop.py": "def run():\n    return 1.0\n",
    "drivers/events.py": "SCHEMA = 2\n",
    "vendors/acme/toy/pytorch/environment_variables.sh": "export A=1\n",
    "vendors/acme/runtime/pytorch/runtime.py": "X = 1\n",
    CONFIG: "train_batch_size = 16\nlr = 1.5\n",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_words_do_not_change_what_is_run(suite: Path, name: str) -> None:
    before = plan_one(suite, "1x8")
    write(suite, {name: HARMLESS[name]})
    after = plan_one(suite, "1x8", repeat=3, seed=9)
    assert (after.plan_digest, after.case_digest) == (before.plan_digest, before.case_digest)


@pytest.mark.parametrize("name", TELLING)
def test_what_can_move_a_number_changes_the_digest(suite: Path, name: str) -> None:
    before = plan_one(suite, "1x8")
    write(suite, {name: TELLING[name]})
    assert plan_one(suite, "1x8").plan_digest != before.plan_digest


def test_a_digest_does_not_know_where_the_checkout_lies(suite: Path, tmp_path: Path) -> None:
    other = plan_one(make_suite(tmp_path / "a folder with blanks"), "1x8")
    assert other.plan_digest == plan_one(suite, "1x8").plan_digest


def test_a_data_file_of_the_case_counts_by_its_content(suite: Path) -> None:
    full, mini = plan_one(suite, "1x1"), plan_one(suite, "1x1", presets=("mini",))
    write(suite, {"cases/toy/pytorch/data/tiny.bin": "changed"})
    assert plan_one(suite, "1x1").data_digest == full.data_digest
    assert plan_one(suite, "1x1", presets=("mini",)).data_digest != mini.data_digest


def test_results_are_comparable_by_version_data_and_environment(suite: Path) -> None:
    plan = plan_one(suite, "1x8")
    key = comparability_key(plan, {"precision": {"compute": "bf16"}, "host": "a"})
    assert plan.measurement_version == "case:3 driver/pytorch:2"
    assert (
        comparability_key(plan_one(suite, "1x8", sets=("lr=3",)), {"precision": {"compute": "bf16"}, "host": "b"})
        == key
    )
    assert comparability_key(plan, {"precision": {"compute": "fp32"}}) != key
    write(suite, {"drivers/pytorch/VERSION": "3\n"})
    assert comparability_key(plan_one(suite, "1x8"), {"precision": {"compute": "bf16"}}) != key


def test_a_driver_without_a_version_is_named(suite: Path) -> None:
    write(suite, {"drivers/pytorch/VERSION": "two"})
    assert "suite/drivers/pytorch/VERSION: 'two' is not an integer" in refusal(suite)


def test_the_cost_counts_base_runs_repeats_and_what_is_unknown(suite: Path) -> None:
    eight = plan_one(suite, "1x8", repeat=2)
    total = cost([eight])
    assert (total.runs, total.base_runs, total.unknown_runs) == (5, 3, 0)
    assert total.device_hours == pytest.approx(2 * 8 + 3 * 60 / 3600)
    assert total.wall_s == 2 * 3600 + 3 * 60
    assert cost([eight, eight]).base_runs == 3
    unknown = cost([eight.model_copy(update={"estimate_s": None})])
    assert unknown.unknown_runs == 2 and "2 runs of unknown length not counted" in str(unknown)
    assert cost([]).device_hours == 0 and cost([]).runs == 0
