"""The agent, as its controller sees it: one line in, words out, and nothing left whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.launch_local import AGENT, LocalLauncher
from fixtures.launcher import AgentSpec
from fixtures.node import processes
from tests.launch_toy import tagged_with, until

# Two generations, the younger in a session of its own and orphaned at once; both deaf to SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = '''
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('child', flush=True)
time.sleep(60)
'''
fork = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"
subprocess.Popen([sys.executable, "-c", fork, code]).wait()
print("ready", flush=True)
time.sleep(60)
"""


class Agent:
    """An agent in a subprocess, with its words."""

    def __init__(self, folder: Path, code: str, **over: Any) -> None:
        self.run = f"agent-test-{os.getpid()}-{folder.name}"
        self.log = folder / "log"
        spec = {
            "run": self.run, "node": 0, "argv": [sys.executable, "-c", code], "cwd": str(folder), "log": str(self.log),
            "total_s": 60, "grace_s": 0.3,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, str(AGENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(spec | over).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, name: str) -> dict[str, Any]:
        """The next word of that name; fails at the end of the stream."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["agent"] == name:
                return message
        raise AssertionError(f"the agent never said {name!r}")

    def logged(self, word: str) -> None:
        until(lambda: self.log.is_file() and word in self.log.read_text())

    def alone(self) -> bool:
        return not tagged_with(self.run)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Agent]:
    """An agent with two stubborn processes, one of them orphaned."""
    agent = Agent(tmp_path, FAMILY)
    agent.logged("ready")
    agent.logged("child")
    yield agent
    agent.process.kill()
    LocalLauncher().sweep(agent.run, 5)
    agent.process.wait(5)


def test_the_end_of_stdin_ends_everything(family: Agent) -> None:
    assert len(tagged_with(family.run)) == 2  # launcher and orphan; the agent itself was started without a tag
    assert family.process.stdin is not None
    family.process.stdin.close()
    ended = family.hear("ended")
    assert ended["leftover"] == []
    assert len(ended["killed"]) == 2
    assert ended["reason"] == "the controller is gone"
    assert family.process.wait(5) == 0
    assert family.alone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything(family: Agent, number: signal.Signals) -> None:
    family.process.send_signal(number)
    assert family.hear("ended")["reason"] == number.name
    assert family.alone()


def test_the_word_end_ends_everything(family: Agent) -> None:
    family.send(do="end", reason="enough")
    assert family.hear("exit")["returncode"] == -signal.SIGKILL
    assert family.hear("ended")["reason"] == "enough"
    assert family.alone()


def test_a_killed_agent_takes_its_launcher_along_and_a_sweep_finds_the_orphan(family: Agent) -> None:
    family.process.kill()
    family.process.wait(5)
    until(lambda: len(tagged_with(family.run)) == 1)
    assert LocalLauncher().sweep(family.run, 5) == []
    assert family.alone()


def test_its_own_deadline_ends_everything(tmp_path: Path) -> None:
    agent = Agent(tmp_path, FAMILY, total_s=1)
    assert agent.hear("ended")["reason"] == "its time is over"
    assert agent.process.wait(5) == 0
    assert agent.alone()


def test_a_launcher_that_leaves_is_reported_and_its_orphans_are_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True); sys.exit(7)"
    agent = Agent(tmp_path, code)
    assert agent.hear("exit")["returncode"] == 7
    assert [process["name"] for process in agent.hear("ended")["killed"]] == ["sleep"]
    assert agent.alone()


def test_stacks_are_asked_of_those_who_can_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR1)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    bystander = "import subprocess, sys; subprocess.Popen([sys.executable, 'train.py']).wait()"
    agent = Agent(tmp_path, bystander)
    agent.logged("ready")
    agent.send(do="stacks")
    agent.logged('train.py", line 4 in <module>')
    assert agent.process.poll() is None
    agent.send(do="end")
    assert len(agent.hear("ended")["killed"]) == 2  # the launcher, which does not catch SIGUSR1, lived until here


def test_a_schedulers_notice_to_the_agent_itself_asks_the_ranks_to_save(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGUSR2, lambda *_: print('saved', flush=True))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(1)\n"
    )
    agent = Agent(tmp_path, "import subprocess, sys; subprocess.Popen([sys.executable, 'train.py']).wait()")
    agent.logged("ready")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        agent.process.send_signal(number)
    agent.logged("saved")
    assert agent.process.poll() is None
    agent.send(do="end")
    agent.hear("ended")


def test_a_launcher_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "", argv=["/nowhere/torchrun"])
    assert agent.hear("error")["text"] == "cannot start /nowhere/torchrun: No such file or directory"
    assert agent.process.wait(5) == 0


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b""])
def test_without_a_spec_the_agent_leaves(line: bytes) -> None:
    done = subprocess.run([sys.executable, str(AGENT)], input=line, capture_output=True, timeout=20, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1])["text"] == "no AgentSpec came on stdin"
    assert done.stderr == b""


def test_the_environment_of_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMARK_TEST_GONE", "1")
    code = "import os; print([os.environ.get(n) for n in ('A', 'TRAINMARK_TEST_GONE', 'TRAINMARK_NODE')], flush=True)"
    agent = Agent(tmp_path, code, env={"A": "b c"}, unset=["TRAINMARK_TEST_GONE"])
    agent.hear("ended")
    assert agent.log.read_text() == "['b c', None, '0']\n"


def test_local_agents_of_one_run_end_their_own_processes_only(tmp_path: Path) -> None:
    run = f"agent-test-{os.getpid()}-pair"
    sleep = "import time; print('ready', flush=True); time.sleep(600)"
    handles = []
    for node in range(2):
        log = tmp_path / f"{node}.log"
        argv = (sys.executable, "-c", sleep)
        spec = AgentSpec(run=run, node=node, argv=argv, cwd=str(tmp_path), log=str(log), total_s=600)
        handles.append(LocalLauncher().start(spec))
        until(lambda log=log: "ready" in log.read_text())  # type: ignore[misc]
    handles[0].send({"do": "end"})
    until(lambda: handles[0].poll() is not None and handles[0].gone())
    assert [processes.environment(pid)[processes.NODE] for pid in tagged_with(run)] == ["1", "1"]  # agent and launcher
    handles[1].send({"do": "end"})
    until(lambda: handles[1].poll() is not None and handles[1].gone())
    for handle in handles:
        handle.kill()
    assert tagged_with(run) == []
