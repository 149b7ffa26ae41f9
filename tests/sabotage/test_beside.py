"""TensorFlow 2 and Paddle: a toy that is broken in every way its driver knows ends as the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.drivers.sabotage import BY_NAME
from tests.launched_toy import events
from tests.sabotage.beside import FRAMEWORKS, HEALTHY, KINDS, NEEDS, broken_jobs
from tests.sabotage.minis import Cell, cells, ended
from tests.sabotage.toy import judged, log_of, play

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_sabotage_of_one_rank_ends_as_named_and_healthy_twins_pass(framework: str, tmp_path: Path) -> None:
    broken = broken_jobs(framework)
    play(tmp_path, [*HEALTHY, *(job for _, job in broken)], timeout_s=900, kind=KINDS[framework])
    for job in HEALTHY:
        outcome = judged(tmp_path, job).outcome
        assert outcome.status == "passed", (job.name, outcome.reason, log_of(tmp_path)[-2000:])
    found = {name: judged(tmp_path, job).outcome for name, job in broken}
    named = {name: (BY_NAME[name].status, BY_NAME[name].category) for name, _ in broken}
    assert {name: (one.status, one.category) for name, one in found.items()} == named, found
    _tells_all(tmp_path / HEALTHY[0].name / "r1", framework)


def _tells_all(run: Path, framework: str) -> None:
    """Every key of the evidence, in the real driver's own stream."""
    windows, results = events(run, name="steps"), events(run, name="eval_result")
    assert windows and results
    for window in windows:
        assert window["updates"] == window["count"] and len(window["data"]) == 16 and window["repeated"] == 0
        assert "until" in window and ("forward_s" in window) == (framework == "paddle")
    for result in results:
        assert result["counted"] == {"mse": 100.0} and result["training"] == 0
    header, checksum = events(run)[0], events(run, name="checksum")[0]
    assert header["sabotage"] is None and header["precision"] == checksum["precision"]


CELLS = [
    pytest.param(cell, marks=NEEDS[framework], id=f"{framework}-{cell.name}")
    for framework in KINDS
    for cell in cells(framework)
]


@pytest.mark.nightly
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_the_real_mini_ends_as_named(cell: Cell, tmp_path: Path) -> None:
    how, reason = ended(cell, tmp_path / "cell")
    assert how == cell.ends, reason
