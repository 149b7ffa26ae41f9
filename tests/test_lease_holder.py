"""The hold of a plan's devices from the controller's side: whoever is not heard to hold them does not hold them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import lease_holder
from fixtures.allocation import Allocation, Place
from fixtures.launch_local import LocalAgent, LocalLauncher
from fixtures.lease_holder import Held, held
from fixtures.node.lease import Lease as Locks
from fixtures.site import Lease, Site
from tests.launch_toy import Watcher, cores, tagged_with, toy_plan, until

KEYS = ["cpu0", "cpu1"]


@pytest.fixture
def watcher() -> Watcher:
    """What was said."""
    return Watcher()


@pytest.fixture
def hold(tmp_path: Path, watcher: Watcher) -> Iterator[Held]:
    """Two devices of this host, held."""
    plan = toy_plan(tmp_path, exclusive=True)
    run = f"toy-{os.getpid()}-{tmp_path.name}"
    with held(
        plan,
        Allocation(places=(Place(node=0, host="here", devices=cores().devices),)),
        run=run,
        session="s1",
        site=Site(lease=Lease(dir=str(tmp_path / "leases"))),
        launcher=LocalLauncher(),
        progress=watcher,
        wait_s=0.0,
        total_s=60.0,
    ) as lease:
        yield lease
    until(lambda: not tagged_with(run))


def agent_of(hold: Held) -> LocalAgent:
    """The agent of our one host."""
    (agent,) = hold.handles
    assert isinstance(agent, LocalAgent)
    return agent


def busy(folder: Path) -> list[str]:
    """The devices that somebody else could not have now."""
    locks = Locks(folder / "leases", KEYS, exclusive=True, owner={})
    found = sorted(locks.attempt())
    locks.release()
    return found


def test_what_is_held_stays_with_its_agent(hold: Held, tmp_path: Path) -> None:
    before = agent_of(hold)
    assert hold.renew()
    assert hold.renew(), "each time it is asked anew"
    assert agent_of(hold) is before
    assert busy(tmp_path) == KEYS


def test_a_dead_agent_has_a_successor(hold: Held, tmp_path: Path) -> None:
    before = agent_of(hold)
    os.kill(before.pid, signal.SIGKILL)
    assert hold.renew(), "nobody had read the end of its words yet"
    assert agent_of(hold) is not before
    assert busy(tmp_path) == KEYS


def test_an_agent_that_does_not_answer_holds_nothing(
    hold: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "_WORD_S", 0.3)
    before = agent_of(hold)
    os.kill(before.pid, signal.SIGSTOP)
    assert not before.gone()
    assert hold.renew()
    assert agent_of(hold) is not before
    assert busy(tmp_path) == KEYS


def test_an_agent_on_its_way_out_is_awaited(hold: Held, tmp_path: Path) -> None:
    """Its relay told it to end, which nobody here knows; until it has ended its devices are not free."""
    before = agent_of(hold)
    before.send({"do": "end", "reason": "the controller was silent"})
    assert hold.renew()
    assert agent_of(hold) is not before
    assert busy(tmp_path) == KEYS


def test_devices_that_are_let_go_a_little_later_are_awaited(hold: Held, tmp_path: Path, watcher: Watcher) -> None:
    os.kill(agent_of(hold).pid, signal.SIGKILL)
    late = Locks(tmp_path / "leases", ["cpu1"], exclusive=True, owner={"user": "ada"})
    until(lambda: not late.attempt())
    threading.Timer(0.5, late.release).start()
    assert hold.renew()
    assert busy(tmp_path) == KEYS
    assert "1 of 2 devices are leased (ada)" in watcher.notes[0]


def test_devices_that_somebody_else_has_taken_are_not_ours(
    hold: Held, tmp_path: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "_LET_GO_S", 0.3)
    os.kill(agent_of(hold).pid, signal.SIGKILL)
    other = Locks(tmp_path / "leases", ["cpu1"], exclusive=True, owner={"user": "ada"})
    until(lambda: not other.attempt())
    assert not hold.renew()
    assert "devices that were lost cannot be had again: 1 of 2 devices are leased (ada)" in watcher.notes[-1]
    other.release()
