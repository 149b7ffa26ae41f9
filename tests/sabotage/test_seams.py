"""Every sabotage, on the real driver or by the real command, ends as its table says; healthy twins pass beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.drivers.sabotage import Sabotage
from tests.driver_toy import events
from tests.sabotage.acts import ACTS, Act
from tests.sabotage.cells import BROKEN, HALF, HEALTHY
from tests.sabotage.toy import Job, judged, log_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("job", HEALTHY, ids=[job.name for job in HEALTHY])
def test_a_healthy_twin_passes(played: Path, job: Job) -> None:
    result = judged(played, job)
    assert result.outcome.status == "passed", (result.outcome, log_of(played)[-2000:])


@pytest.mark.parametrize(("sabotage", "job"), BROKEN, ids=[f"{one.name}-{job.mode}" for one, job in BROKEN])
def test_a_sabotage_ends_as_its_table_says(played: Path, sabotage: Sabotage, job: Job) -> None:
    outcome = judged(played, job).outcome
    assert (outcome.status, outcome.category) == (sabotage.status, sabotage.category), outcome.reason


def test_half_of_the_devices_is_told_from_inside(played: Path) -> None:
    """The rank that stays finds itself alone; the one that left wrote nothing."""
    folder = played / HALF.name / "r1"
    stop = events(folder)[-1]
    assert (stop["status"], stop["reason"]) == ("aborted", "environment")
    assert "world size is 1 where the plan says 2" in stop["detail"]
    assert not (folder / "events" / "rank1.jsonl").exists()


@pytest.mark.parametrize("act", ACTS, ids=[act.name for act in ACTS])
def test_an_act_outside_of_the_driver_is_told(played: Path, tmp_path: Path, act: Act) -> None:
    did = act.do(tmp_path, played)
    assert did.ends == act.ends, did.told
