"""The harness was killed before a rank had said anything: the run is lost, which accuses nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from suite.verdict import judge_folder
from tests.run_folders import read_lines, tiny_plan, write_lines, write_plan_folder

Put = Callable[[Path], object]


def killed(folder: Path, put: Put) -> Path:
    """A plan's folder whose harness never wrote how the run ended, with rank 0's stream as `put` leaves it."""
    plan = tiny_plan()
    write_plan_folder(folder, plan)
    for place in (folder, folder / "r1"):
        path = place / "harness.jsonl"
        if path.exists():
            write_lines(path, [line for line in read_lines(path) if line["event"] != "ended"])
    put(folder / "r1" / "events" / "rank0.jsonl")
    return folder


@pytest.mark.parametrize(
    "put",
    [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b'{"event":"hea'), Path.unlink],
    ids=["empty", "torn", "absent"],
)
def test_a_stream_that_has_not_begun(tmp_path: Path, put: Put) -> None:
    outcome = judge_folder(killed(tmp_path / "plan", put)).outcome
    assert (outcome.status, outcome.category) == ("error", "worker_lost")
    assert "the harness was lost" in outcome.reason


def test_a_stream_that_holds_nonsense_still_voids_it(tmp_path: Path) -> None:
    """Half a run may be judged by what it wrote: a line that no driver writes is not the kill's doing."""
    outcome = judge_folder(killed(tmp_path / "plan", lambda path: path.write_bytes(b"nonsense\n"))).outcome
    assert (outcome.status, outcome.category) == ("failed", "invalid_measurement")
    assert "events/rank0.jsonl:1: not strict JSON" in outcome.reason
