"""The channel to the nodes of a job: proven on both sides, by TCP or by files, and an end for all when it is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.channel_tcp import Exchange
from fixtures.launcher import AgentSpec, Message, wait_for_word
from fixtures.node.control import proof
from fixtures.node_link import NodeLink
from fixtures.slurm_launcher import SlurmLauncher
from suite.outcome import Outcome
from tests.launch_toy import ROOT, tagged_with, until

RELAY = ROOT / "fixtures" / "node" / "job_relay.py"
NOWHERE = "127.0.0.1"


@pytest.fixture
def relays() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for relay in started:
        relay.kill()
        relay.wait()


class Job:
    """A job of the channels alone."""

    def __init__(self, links: dict[str, NodeLink]) -> None:
        self.links = links

    def trouble(self) -> Outcome | None:
        return None

    def explain(self, outcome: Outcome) -> Outcome:
        return outcome


def start_relay(exchange: Exchange, node: int = 0, name: str = "", job: str = "77") -> subprocess.Popen[bytes]:
    """As srun would start it."""
    own = {"SLURM_JOB_ID": job, "SLURM_NODEID": str(node), "SLURMD_NODENAME": name or f"f{node}", "SLURM_STEP_ID": "0"}
    argv = [sys.executable, str(RELAY), str(exchange.place)]
    return subprocess.Popen(argv, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)


def run_of(path: Path) -> str:
    """A run id of this test's own."""
    return f"chan-{os.getpid()}-{path.name}"


def sleeper(run: str, **over: Any) -> AgentSpec:
    """An agent with a child that ignores its end, in a session of its own."""
    stubborn = "import os,signal,time; os.fork() or os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    argv = (sys.executable, "-c", stubborn)
    return AgentSpec(**{"run": run, "node": 0, "argv": argv, "cwd": "/", "total_s": 600.0, **over})


def hear(agents: list[Any], word: str, limit_s: float = 20.0) -> list[Message]:
    """Everything said until every agent has said `word`."""
    said: list[Message] = []
    waiting = set(range(len(agents)))
    due = time.monotonic() + limit_s
    while waiting and time.monotonic() < due:
        wait_for_word(agents, 0.2)
        for number, agent in enumerate(agents):
            for message in agent.poll():
                said.append(message)
                if message["agent"] == word:
                    waiting.discard(number)
    assert not waiting, said
    return said


def connected(exchange: Exchange, count: int) -> dict[str, NodeLink]:
    """All nodes, once they have come."""
    return until(lambda: links if len(links := exchange.links()) == count else None, 30)


@pytest.mark.parametrize("by", ["tcp", "files"])
def test_agents_of_two_nodes_talk_and_end(
    tmp_path: Path, relays: list[subprocess.Popen[bytes]], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Exchange(tmp_path / "control", address=NOWHERE if by == "tcp" else "192.0.2.1")
    exchange.admit("77")
    try:
        if by == "files":
            _without_addresses(exchange)
        relays += [start_relay(exchange, node) for node in (0, 1)]
        exchange.expect(["f0", "f1"])
        launcher = SlurmLauncher()
        launcher.serve(Job(connected(exchange, 2)))
        assert (exchange.folder.stat().st_mode & 0o777, exchange.place.stat().st_mode & 0o777) == (0o700, 0o600)
        run = run_of(tmp_path)
        agents = [launcher.start(sleeper(run, node=node, argv=("sleep", "0.2")), f"f{node}") for node in (0, 1)]
        said = hear(agents, "ended")
        assert [message["returncode"] for message in said if message["agent"] == "exit"] == [0, 0]
        until(lambda: all(agent.gone() for agent in agents))
        assert launcher.ask("f1", {"do": "probe", "method": "host"}, 20)["devices"]
        with launcher.leased_port(tmp_path / "leases", 0, "f0") as port:
            assert launcher.port_is_free(port)
            with socket.create_server(("", port)):
                assert not launcher.port_is_free(port)
        endless = launcher.start(sleeper(run), "f0")
        hear([endless], "started")
        endless.send({"do": "end", "reason": "enough", "grace_s": 0.2})
        assert hear([endless], "ended")[-1]["leftover"] == []
        assert launcher.sweep(run, 2.0) == []
        for agent in (*agents, endless):
            agent.kill()
        for link in exchange.links().values():
            link.send({"leave": "done"})
        assert [relay.wait(15) for relay in relays] == [0, 0]
    finally:
        exchange.close()
    assert not exchange.place.exists()


def _without_addresses(exchange: Exchange) -> None:
    """As where no address can be reached: the nodes turn to files at once."""
    place = json.loads(exchange.place.read_text())
    exchange.place.write_text(json.dumps({**place, "addresses": []}))


def test_a_controller_that_is_gone_takes_all_with_it(tmp_path: Path, relays: list[subprocess.Popen[bytes]]) -> None:
    exchange = Exchange(tmp_path / "control", address=NOWHERE)
    exchange.admit("77")
    relays.append(start_relay(exchange))
    launcher = SlurmLauncher()
    launcher.serve(Job(connected(exchange, 1)))
    run = run_of(tmp_path)
    agent = launcher.start(sleeper(run), "f0")
    hear([agent], "started")
    until(lambda: len(tagged_with(run)) >= 3)
    exchange.close()
    until(lambda: not tagged_with(run), 6)
    assert relays[0].wait(15) == 1
    assert agent.gone() and agent.fileno() == -1
    with pytest.raises(OSError, match="the channel to f0 is lost"):
        launcher.start(sleeper(run), "f0")


def test_a_lease_file_that_is_not_renewed_takes_all_with_it(
    tmp_path: Path, relays: list[subprocess.Popen[bytes]]
) -> None:
    exchange = Exchange(tmp_path / "control", lease_s=3.0)
    exchange.admit("77")
    _without_addresses(exchange)
    relays.append(start_relay(exchange))
    launcher = SlurmLauncher()
    launcher.serve(Job(connected(exchange, 1)))
    run = run_of(tmp_path)
    hear([launcher.start(sleeper(run), "f0")], "started")
    until(lambda: len(tagged_with(run)) >= 3)
    exchange.close()
    until(lambda: not tagged_with(run), 12)
    assert relays[0].wait(15) == 1


def test_a_killed_relay_is_a_lost_link_and_leaves_nothing(
    tmp_path: Path, relays: list[subprocess.Popen[bytes]]
) -> None:
    exchange = Exchange(tmp_path / "control", address=NOWHERE)
    exchange.admit("77")
    try:
        relays.append(start_relay(exchange))
        launcher = SlurmLauncher()
        launcher.serve(Job(connected(exchange, 1)))
        run = run_of(tmp_path)
        agent = launcher.start(sleeper(run), "f0")
        hear([agent], "started")
        until(lambda: len(tagged_with(run)) >= 3)
        relays[0].send_signal(signal.SIGKILL)
        until(agent.gone)
        assert "closed" in exchange.links()["f0"].lost
        until(lambda: not tagged_with(run), 8)
        assert launcher.sweep(run, 0.5) == []
    finally:
        exchange.close()


def test_a_signal_before_the_jobs_end_asks_the_ranks_to_save(
    tmp_path: Path, relays: list[subprocess.Popen[bytes]]
) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGUSR2, lambda *_: pathlib.Path('saved').write_text('yes'))\n"
        "pathlib.Path('ready').write_text('yes')\n"
        "time.sleep(60)\n"
    )
    exchange = Exchange(tmp_path / "control", address=NOWHERE)
    exchange.admit("77")
    try:
        relays.append(start_relay(exchange))
        launcher = SlurmLauncher()
        launcher.serve(Job(connected(exchange, 1)))
        spec = sleeper(run_of(tmp_path), argv=(sys.executable, "train.py"), cwd=str(tmp_path))
        agent = launcher.start(spec, "f0")
        until(lambda: (tmp_path / "ready").exists())
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            relays[0].send_signal(number)
        until(lambda: (tmp_path / "saved").exists())
        assert not agent.gone()
        agent.send({"do": "end", "reason": "enough", "grace_s": 0.2})
        hear([agent], "ended")
    finally:
        exchange.close()


@pytest.mark.parametrize("wrong", ["token", "job", "name", "second"])
def test_whoever_is_not_of_the_job_is_turned_away(
    tmp_path: Path, relays: list[subprocess.Popen[bytes]], wrong: str
) -> None:
    exchange = Exchange(tmp_path / "control", address=NOWHERE)
    exchange.admit("77")
    exchange.expect(["f0", "f1"])
    try:
        if wrong == "second":
            relays.append(start_relay(exchange))
            connected(exchange, 1)
        place = json.loads(exchange.place.read_text())
        with socket.create_connection((NOWHERE, place["port"]), timeout=5) as guest:
            stream = guest.makefile("rw")
            nonce = json.loads(stream.readline())["nonce"]
            token = "guess" if wrong == "token" else place["token"]
            hello = {
                "proof": proof(token, "node", nonce),
                "nonce": "n",
                "job": "78" if wrong == "job" else "77",
                "name": "evil" if wrong == "name" else "f0",
                "node": 0,
            }
            stream.write(json.dumps(hello) + "\n")
            stream.flush()
            assert stream.readline() == ""  # closed without a word
        assert len(exchange.links()) == (1 if wrong == "second" else 0)
        assert not any(link.lost for link in exchange.links().values())
    finally:
        exchange.close()


def test_noise_on_the_port_harms_nobody(tmp_path: Path, relays: list[subprocess.Popen[bytes]]) -> None:
    exchange = Exchange(tmp_path / "control", address=NOWHERE)
    exchange.admit("77")
    try:
        port = json.loads(exchange.place.read_text())["port"]
        for noise in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 100_000, b"{}\n", b"[1]\n", b""):
            with socket.create_connection((NOWHERE, port), timeout=5) as guest:
                guest.sendall(noise)
        relays.append(start_relay(exchange))
        connected(exchange, 1)
    finally:
        exchange.close()


def test_a_relay_obeys_nobody_but_its_controller(tmp_path: Path) -> None:
    """What listens on the controller's port now cannot prove itself, and is given no proof that it could use."""
    with socket.create_server((NOWHERE, 0)) as server:
        place = {"token": "t" * 64, "addresses": [NOWHERE], "port": server.getsockname()[1]}
        folder = tmp_path / "control"
        folder.mkdir()
        (folder / "control.json").write_text(json.dumps({**place, "folder": str(folder), "lease_s": 2.0}))
        argv = [sys.executable, "-c", _IMPATIENT, str(folder / "control.json")]
        with subprocess.Popen(
            argv, cwd=ROOT, env={**os.environ, "SLURM_JOB_ID": "77"}, stderr=subprocess.PIPE
        ) as relay:
            guest, _ = server.accept()
            with guest, guest.makefile("rw") as stream:
                stream.write(json.dumps({"nonce": "mine"}) + "\n")
                stream.flush()
                hello = json.loads(stream.readline())
                assert place["token"] not in json.dumps(hello)
                stream.write(json.dumps({"welcome": proof("guess", "controller", str(hello["nonce"]))}) + "\n")
                stream.write(json.dumps({"open": 1, "program": "agent", "line": "{}"}) + "\n")
                stream.flush()
                assert stream.readline() == ""
            assert relay.wait(20) == 1


_IMPATIENT = """
import sys
from fixtures.node import control, job_relay
connect = control.connect
job_relay.connect = lambda place, hello: connect(place, hello, 0.0)
sys.exit(job_relay.main(sys.argv[1:]))
"""
