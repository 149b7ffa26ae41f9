"""Leases: who holds a device holds it alone, in order, and not beyond his death; a folder of strangers is no trap."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.node import lockfile
from fixtures.node.lease import Lease
from fixtures.ports import is_free, leased_port
from suite.errors import UsageProblem
from tests.launch_toy import ROOT, until

OWNER: dict[str, object] = {"session": "s1", "user": "ada"}

HOLDER = """
import sys, time
from pathlib import Path
from fixtures.node.lease import Lease
lease = Lease(Path(sys.argv[1]), sys.argv[3:], exclusive=sys.argv[2] == "exclusive", owner={"user": "bob"})
while lease.attempt():
    lease.queue()
    time.sleep(0.02)
print("held", flush=True)
time.sleep(60)
"""


class Other:
    """Another process that wants devices."""

    def __init__(self, folder: Path, *keys: str, exclusive: bool = True) -> None:
        mode = "exclusive" if exclusive else "shared"
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), mode, *keys], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def holds(self) -> bool:
        assert self.process.stdout is not None
        return bool(self.process.stdout.read())

    def die(self) -> None:
        self.process.kill()
        self.process.wait(5)


@pytest.fixture
def others() -> Iterator[list[Other]]:
    """Processes that are ended afterwards."""
    found: list[Other] = []
    yield found
    for other in found:
        other.die()


def lease(folder: Path, *keys: str, exclusive: bool = True) -> Lease:
    return Lease(folder, keys, exclusive=exclusive, owner=OWNER)


def test_two_processes_cannot_hold_one_device_and_death_frees_it(tmp_path: Path, others: list[Other]) -> None:
    others.append(Other(tmp_path / "leases", "gpu0", "gpu1"))
    until(others[0].holds)
    mine = lease(tmp_path / "leases", "gpu1", "gpu2")
    assert mine.attempt() == {"gpu1": {"user": "bob"}}
    free = lease(tmp_path / "leases", "gpu2")
    assert free.attempt() == {}, "nothing is held by who got not all"
    free.release()
    others[0].die()
    assert mine.attempt() == {}


def test_the_folder_and_its_files_serve_every_user(tmp_path: Path) -> None:
    held = lease(tmp_path / "leases", "GPU-1/2")
    held.attempt()
    path = tmp_path / "leases" / "device-GPU-1_2.lock"
    assert path.stat().st_mode & 0o777 == 0o666
    assert (tmp_path / "leases").stat().st_mode & 0o7777 == 0o1777
    assert '"ada"' in path.read_text()
    held.release()
    assert path.read_text() == ""


def test_shared_holders_tolerate_each_other_and_keep_an_exclusive_one_out(tmp_path: Path) -> None:
    first, second = (lease(tmp_path / "l", "cpu0", exclusive=False) for _ in range(2))
    assert first.attempt() == {}
    assert second.attempt() == {}
    assert list(lease(tmp_path / "l", "cpu0").attempt()) == ["cpu0"]


def test_a_waiter_for_many_is_not_starved_by_later_small_ones(tmp_path: Path, others: list[Other]) -> None:
    folder = tmp_path / "l"
    small = lease(folder, "gpu0")
    assert small.attempt() == {}
    others.append(Other(folder, "gpu0", "gpu1"))
    until(lambda: any(folder.glob("ticket-*")))
    late = lease(folder, "gpu1")
    assert late.attempt() == {"gpu1": {"user": "bob", "waiting": True}}, "free, but promised"
    assert lease(folder, "gpu2").attempt() == {}
    small.release()
    until(others[0].holds)
    others[0].die()
    assert late.attempt() == {}


def test_a_dead_waiter_stands_in_nobodys_way(tmp_path: Path, others: list[Other]) -> None:
    folder = tmp_path / "l"
    first = lease(folder, "gpu0")
    first.attempt()
    others.append(Other(folder, "gpu0", "gpu1"))
    until(lambda: any(folder.glob("ticket-*")))
    others[0].die()
    assert lease(folder, "gpu1").attempt() == {}
    assert list(folder.glob("ticket-*")) == []


def test_waiters_come_in_turn(tmp_path: Path) -> None:
    folder = tmp_path / "l"
    holder, first, second = (lease(folder, "gpu0") for _ in range(3))
    assert holder.attempt() == {}
    for waiter in (first, second):
        assert waiter.attempt()
        waiter.queue()
        time.sleep(0.001)
    holder.release()
    assert second.attempt() == {"gpu0": {**OWNER, "waiting": True}}
    assert first.attempt() == {}
    first.release()
    assert second.attempt() == {}


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "precious"
    victim.write_text("data")
    held = lease(tmp_path / "l", "gpu0")
    (tmp_path / "l" / "device-gpu0.lock").symlink_to(victim)
    with pytest.raises(lockfile.LockProblem, match="is a symbolic link; its owner or root must remove it"):
        held.attempt()
    assert victim.read_text() == "data"


def test_a_hard_link_is_not_written(tmp_path: Path) -> None:
    victim = tmp_path / "precious"
    victim.write_text("data")
    held = lease(tmp_path / "l", "gpu0")
    (tmp_path / "l" / "device-gpu0.lock").hardlink_to(victim)
    with pytest.raises(lockfile.LockProblem, match="not a plain file of its own"):
        held.attempt()
    assert victim.read_text() == "data"


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    held = lease(tmp_path / "l", "gpu0")
    os.mkfifo(tmp_path / "l" / "device-gpu0.lock")
    with pytest.raises(lockfile.LockProblem, match="not a plain file"):
        held.attempt()


def test_a_lock_that_was_replaced_under_its_name_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    descriptor = lockfile.open_lock(path)
    path.unlink()
    path.write_text("")
    assert not lockfile.take(descriptor, path, True)
    os.close(descriptor)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"user": "' + "x" * 5000, '{"user": {"a": 1}}', "\xff\x00"])
def test_what_strangers_wrote_about_themselves_cannot_hurt(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.lock"
    path.write_text(text)
    descriptor = lockfile.open_lock(path)
    assert lockfile.read_owner(descriptor) == {}
    os.close(descriptor)


def test_an_owners_escape_sequences_are_dropped(tmp_path: Path) -> None:
    descriptor = lockfile.open_lock(tmp_path / "x.lock")
    lockfile.write_owner(descriptor, {"user": "\x1b[2Jada\n"})
    assert lockfile.read_owner(descriptor) == {"user": "[2Jada"}
    os.close(descriptor)


def test_a_folder_without_the_sticky_bit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "l"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(lockfile.LockProblem, match="chmod 1777"):
        lockfile.open_folder(folder)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "l").symlink_to(tmp_path / "real")
    with pytest.raises(lockfile.LockProblem, match="is not a folder"):
        lockfile.open_folder(tmp_path / "l")


def test_ports_are_leased_apart(tmp_path: Path) -> None:
    with leased_port(tmp_path / "l") as first:
        with leased_port(tmp_path / "l") as second:
            assert first != second
            assert is_free(first)
        with pytest.raises(UsageProblem, match=rf"master_port = {first} is in use"), leased_port(tmp_path / "l", first):
            pass
    with leased_port(tmp_path / "l", first) as again:
        assert again == first
