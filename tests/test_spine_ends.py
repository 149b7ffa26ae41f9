"""However a real training dies, the outcome is right, the reports are whole, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.spine import GLM, Clone, await_event, check_of, clone, tagged

pytestmark = pytest.mark.slow
PLAN = f"{GLM}-1x1"


@pytest.fixture
def checkout(tmp_path: Path) -> Clone:
    """A copy of the checkout."""
    return clone(tmp_path)


def expect_whole(checkout: Clone, status: str, category: str) -> dict[str, object]:
    """session.json and junit.xml tell the same outcome, and no process of the session lives after 10 s."""
    session = checkout.root / "s"
    report = json.loads((session / "session.json").read_text())
    [result] = report["results"]
    assert (result["outcome"]["status"], result["outcome"]["category"]) == (status, category), result["outcome"]
    assert check_of(result, "quality")["status"] == "inconclusive"
    suite = ET.parse(session / "junit.xml").getroot().find(f".//testsuite[@name='{PLAN}']")
    assert suite is not None and len(suite.findall("testcase")) == 1 + len(result["checks"])
    deadline = time.monotonic() + 10
    while left := tagged(str(session)):
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.2)
    return dict(result["outcome"])


def test_a_killed_rank_is_a_crash_that_names_it(checkout: Clone) -> None:
    """kill -9 of the training process."""
    process = checkout.start("-k", "glm and 1x1", "--session", "s")
    await_event(checkout.root / "s", "steps")
    header = json.loads(next((checkout.root / "s").glob("*/r1/events/rank0.jsonl")).open().readline())
    os.kill(header["pid"], signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    outcome = expect_whole(checkout, "error", "crash")
    assert process.returncode == 1 and outcome["rank"] == 0 and "SIGKILL" in str(outcome["reason"]), out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_to_pytest_ends_the_run_and_keeps_the_reports(checkout: Clone, number: signal.Signals) -> None:
    """The session is interrupted: exit 2."""
    process = checkout.start("-k", "glm and 1x1", "--session", "s")
    await_event(checkout.root / "s", "steps")
    process.send_signal(number)
    process.communicate(timeout=60)
    expect_whole(checkout, "error", "interrupted")
    assert process.returncode == 2


def test_a_deadline_ends_the_run(checkout: Clone) -> None:
    """total_s = 5: less than the framework needs to start."""
    checkout.edit(
        "suite/cases/glm/pytorch/case.toml",
        "[preset.mini.params]",
        "[preset.mini.deadlines]\ntotal_s = 5\n\n[preset.mini.params]",
    )
    code, out = checkout.run("-k", "glm and 1x1", "--session", "s")
    outcome = expect_whole(checkout, "error", "timeout")
    assert code == 1 and "5 s" in str(outcome["reason"]), out
