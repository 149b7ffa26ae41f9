"""The table of sabotages: complete, known to its drivers, documented, and refused where it would show nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sabotage_cells import CASES, cells, twin
from fixtures.options import SABOTAGES
from suite.broken import refuse_misfit
from suite.drivers.pytorch.sabotage import CLASSES
from suite.drivers.sabotage import BY_NAME, TABLE, known_to
from suite.errors import UsageProblem
from suite.outcome import CATEGORIES, Outcome
from tests.planning_toys import make_suite, plan_one
from tests.sabotage.acts import ACTS
from tests.sabotage.rows import act_row, row

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "sabotage.md").read_text(encoding="utf-8")


def test_there_are_at_least_twenty_four_and_every_one_of_the_drivers_is_built() -> None:
    assert len(TABLE) >= 24 and len(BY_NAME) == len(TABLE)
    assert tuple(BY_NAME) == SABOTAGES
    assert tuple(CLASSES) == known_to("pytorch")
    assert set(BY_NAME) - set(known_to("tensorflow2")) == {"slow_rank"}
    assert set(BY_NAME) - set(known_to("paddle")) == {"precision_lowered"}


def test_nothing_broken_may_end_as_passed() -> None:
    for sabotage in TABLE:
        assert sabotage.status != "passed" and sabotage.category in CATEGORIES[sabotage.status]
        Outcome.model_validate({"status": sabotage.status, "category": sabotage.category})


@pytest.mark.parametrize("sabotage", TABLE, ids=[one.name for one in TABLE])
def test_the_page_holds_each_row(sabotage: object) -> None:
    assert row(sabotage) in PAGE  # type: ignore[arg-type]


@pytest.mark.parametrize("act", ACTS, ids=[act.name for act in ACTS])
def test_the_page_holds_each_act(act: object) -> None:
    assert act_row(act) in PAGE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topology", "name", "sentence"),
    [
        ("1x1", "rank_frozen", "it needs 2 ranks, but the plan has 1: name a larger --topology"),
        ("1x8", "accumulation_as_steps", "add --set gradient_accumulation_steps=2"),
        ("1x8", "seed_reused", "it needs two runs: add --repeat 2"),
        ("1x8", "thermal_slowdown", "shows in mode throughput only: add --mode throughput"),
    ],
)
def test_a_sabotage_that_shows_nothing_is_refused(tmp_path: Path, topology: str, name: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=f"--sabotage {name}: ") as raised:
        refuse_misfit(plan_one(make_suite(tmp_path), topology, sabotage=name))
    assert sentence in str(raised.value)


def test_a_sabotage_that_another_driver_does_not_know_is_refused() -> None:
    from suite.drivers.sabotage import misfit

    shape = {"ranks": 2, "accumulation": 1, "mode": "converge", "repeat": 1}
    for framework in ("pytorch", "tensorflow2"):
        assert misfit("precision_lowered", framework=framework, **shape) is None  # type: ignore[arg-type]
    why = str(misfit("precision_lowered", framework="paddle", **shape))  # type: ignore[arg-type]
    assert why.startswith("is not built into the driver of paddle (has: lr_zero, labels_shuffled, ")
    assert "(has: none)" in str(misfit("precision_lowered", framework="scripts", **shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_the_matrix_has_a_cell_for_each_sabotage_that_applies(case: str) -> None:
    """And a healthy twin, which must pass."""
    every = list(cells(case))
    assert {cell.name for cell in every} == set(BY_NAME)
    for cell in every:
        healthy = twin(cell)
        assert (healthy.shape, healthy.status, healthy.name) == (cell.shape, "passed", "")
        assert "--sabotage" in cell.words() and "--sabotage" not in healthy.words()


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sabotage_matrix", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "--sabotage" in done.stdout and "--case" in done.stdout
