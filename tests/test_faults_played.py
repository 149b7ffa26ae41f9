"""Every fault of the registry, brought about: its outcome, complete reports, and nothing left."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.faults.fault import Fault
from tests.faults.registry import FAULTS
from tests.faults.scene import Scene
from tests.faults.table import RECORD, record
from tests.kernel_kills import kernel_kills

LIKE_ANOTHER = frozenset(
    {"agent_stopped", "device_memory_kept", "driver_stuck", "exit_7_torchrun", "hang_torchrun", "inf_loss"}
    | {"launcher_killed_torchrun", "orphan_breeds", "orphan_deaf", "rank_killed_2x1", "rank_killed_torchrun"}
    | {"sigkill_torchrun", "sigterm_workers"}
    # Other ways to die, of which rank_killed and exception are played; how a rank ended is read by other tests.
    | {"rank_terminated", "segfault", "abort_signal", "exit_7", "deep_recursion"}
    # Other defects of a line, as bad_line; each is shown to the reader of streams by its own tests.
    | {"bare_nan", "unknown_event", "line_after_stop", "long_line", "deep_line", "clock_back_mono"}
    # Other waits and signals, as hang_in_collective, no_header, sigterm, tool_missing, agent_killed and orphans.
    | {"hang_deaf", "silent_rank", "no_first_step", "sighup", "tool_stuck", "tool_fails", "agent_1_killed"}
    | {"monitor_stopped", "orphan_listens", "tool_garbage", "sigkill_deaf_ranks"}
)
"""Those that another, or a test of the part that tells them, tells in part."""
assert FAULTS.keys() >= LIKE_ANOTHER
PLAYED = [
    pytest.param(fault, id=name, marks=[pytest.mark.slow, pytest.mark.nightly] if name in LIKE_ANOTHER else [])
    for name, fault in FAULTS.items()
]


@pytest.mark.parametrize("fault", PLAYED)
def test_fault(fault: Fault, tmp_path: Path) -> None:
    """Asserted are outcome, culprit, attempts, exit status and emptiness; never how long it took."""
    scene = Scene(fault, tmp_path / "checkout")
    with kernel_kills(brought_about=fault.name == "oom_kill"):
        row = scene.play()
    if path := os.environ.get(RECORD):
        record(row, Path(path))
    assert fault.differences(row) == [], scene.checkout.output[-4000:]
    if fault.expect != "exit 4" and scene.checkout.results.is_dir():
        assert_complete(scene)


def assert_complete(scene: Scene) -> None:
    """session.json and junit.xml can be read and tell of every plan."""
    session = scene.checkout.session()
    ids = [result["id"] for result in session["results"]]
    assert ids == session["selected"]
    assert len(ids) == 1
    suites = ElementTree.fromstring((scene.checkout.results / "junit.xml").read_bytes())
    assert [suite.get("name") for suite in suites] == ids
    assert suites[0].find("testcase[@name='run']") is not None
