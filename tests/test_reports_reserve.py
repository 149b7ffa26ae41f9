"""The room that a session keeps for its reports: there while it runs, and gone with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reports.reserve import BYTES, FORMER_NAME, Reserve

ROOT = Path(__file__).resolve().parent.parent
HOLDS = """
import sys, time
from pathlib import Path
from reports.reserve import Reserve
reserve = Reserve(Path(sys.argv[1]))
reserve.hold()
print("held", flush=True)
time.sleep(60)
"""


def held_by_us(folder: Path) -> int:
    """Bytes of files without a name that this process holds in the folder."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            target, size = str(link.readlink()), link.stat().st_blocks * 512
        except OSError:
            continue  # the descriptor of this very listing
        found += size if target.startswith(f"{folder}/") and target.endswith("(deleted)") else 0
    return found


def test_the_room_is_there_without_a_name_until_it_is_given_up(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    reserve.hold()
    reserve.hold()
    assert BYTES <= held_by_us(tmp_path) < 2 * BYTES
    assert list(tmp_path.iterdir()) == []
    assert reserve.give_up() is True
    assert held_by_us(tmp_path) == 0
    assert reserve.give_up() is False, "there is nothing left to give"


def test_nothing_is_left_of_a_session_that_was_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "not there")
    reserve.hold()
    assert reserve.give_up() is False


@pytest.mark.parametrize(
    ("session", "size", "goes"),
    [(True, BYTES, True), (True, BYTES + 1, False), (False, BYTES, False)],
    ids=["left by a session", "another's file", "no session"],
)
def test_the_next_session_removes_what_earlier_versions_have_left(
    tmp_path: Path, session: bool, size: int, goes: bool
) -> None:
    left, own = tmp_path / "old", tmp_path / "new"
    left.mkdir()
    own.mkdir()
    (left / FORMER_NAME).write_bytes(b"\0" * size)
    if session:
        (left / "journal-main.jsonl").write_text("")
    (own / "link").symlink_to(left)
    Reserve(own).hold()
    assert (left / FORMER_NAME).exists() is not goes
