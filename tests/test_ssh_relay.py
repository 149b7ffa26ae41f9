"""The relay between an agent and a controller elsewhere, over plain pipes: what ssh would carry, without ssh."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.bundle import ROOT
from fixtures.faults.accelerators import build_library
from fixtures.node import follow, processes
from fixtures.node.ports import is_free
from tests.launch_toy import tagged_with, until

# A launcher with a child in a session of its own; both deaf to SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('child', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
time.sleep(60)
"""


class Far:
    """The other end of the line."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "fixtures" / "node")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.files: dict[str, bytes] = {}
        self.heard: list[dict[str, Any]] = []
        self._torn = b""
        self.say(order)

    def say(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, *names: str, limit_s: float = 15.0) -> dict[str, Any]:
        """The next of these words; the controller's pulse goes on meanwhile."""
        due = time.monotonic() + limit_s
        while time.monotonic() < due:
            for message in self._read():
                self.heard.append(message)
                if message.get("agent") == "file":
                    name = message["path"]
                    self.files[name] = self.files.get(name, b"") + base64.b64decode(message["data"])
            found = [message for message in self.heard if not names or message.get("agent") in names]
            if found:
                self.heard.remove(found[0])
                return found[0]
            if self.process.poll() is None:
                self.say({"do": "alive"})
        raise AssertionError(f"none of {names} was said; heard {self.heard}")

    def _read(self) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 0.1)[0]:
            return []
        *lines, self._torn = (self._torn + os.read(self.process.stdout.fileno(), 1 << 20)).split(b"\n")
        return [json.loads(line) for line in lines]

    def agent(self) -> int:
        """The pid of the agent below the relay."""
        found = [p.pid for p in processes.descendants(self.process.pid) if "agent.py" in processes.command(p.pid)[-1]]
        return found[0]


class Run:
    """A run of one node, with or without a mirror."""

    def __init__(self, folder: Path, code: str, *, mirrored: bool, silence_s: float = 5.0) -> None:
        self.name = f"relay-{os.getpid()}-{folder.name}"
        self.mirror = folder / "run-x-node0"
        logs = self.mirror / "logs" if mirrored else folder
        spec = {
            "run": self.name, "node": 0, "argv": [sys.executable, "-c", code], "cwd": str(folder),
            "log": str(logs / "node0.log"), "total_s": 60, "env": {"HERE": str(self.mirror)},
        }  # fmt: skip
        mirror = {"folder": str(self.mirror), "files": {"run.json": "{}"}} if mirrored else None
        self.far = Far({"do": "agent", "spec": spec, "silence_s": silence_s, "mirror": mirror})

    def started(self, count: int) -> None:
        self.far.hear("started")
        # The agent and what it started.
        until(lambda: len(tagged_with(self.name)) >= count)

    def nothing_left(self) -> bool:
        return not tagged_with(self.name)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, STUBBORN, mirrored=False)
    run.started(3)
    yield run
    run.far.process.kill()
    run.far.process.wait(5)
    until(run.nothing_left)


def test_the_end_of_the_channel_ends_everything_within_five_seconds(stubborn: Run) -> None:
    assert stubborn.far.process.stdin is not None
    stubborn.far.process.stdin.close()
    until(stubborn.nothing_left, 5.0)
    stubborn.far.process.wait(5)


def test_silence_is_the_end_of_the_channel(tmp_path: Path) -> None:
    """A pulled cable closes nothing."""
    run = Run(tmp_path, STUBBORN, mirrored=False, silence_s=1.5)
    run.started(3)
    until(run.nothing_left, 1.5 + 5.0)
    run.far.process.wait(5)


def test_a_controller_that_lives_is_not_silent(tmp_path: Path) -> None:
    run = Run(tmp_path, "import time; time.sleep(3)", mirrored=False, silence_s=1.5)
    assert run.far.hear("exit")["returncode"] == 0
    assert run.far.hear("ended")["reason"] == "the launcher left"
    assert run.far.process.wait(5) == 0


def test_a_killed_agent_takes_everything_along(stubborn: Run) -> None:
    os.kill(stubborn.far.agent(), signal.SIGKILL)
    until(stubborn.nothing_left, 5.0)
    assert stubborn.far.process.wait(5) == 0
    assert not [word for word in stubborn.far.heard if word.get("agent") == "ended"]


def test_a_killed_relay_takes_everything_along(stubborn: Run) -> None:
    stubborn.far.process.kill()
    until(stubborn.nothing_left, 6.0)


def test_commands_go_through(stubborn: Run) -> None:
    stubborn.far.say({"do": "end", "reason": "enough", "grace_s": 0.2})
    assert stubborn.far.hear("ended")["reason"] == "enough"
    assert stubborn.far.process.wait(5) == 0
    assert stubborn.nothing_left()


WRITES = """
import json, os, sys, time
here = os.environ["HERE"]
for n in range(20):
    with open(here + "/events/rank0.jsonl", "a") as file: file.write("{}\\n")
    time.sleep(0.02)
with open(here + "/checkpoints/latest.pt", "wb") as file: file.write(b"c" * 100_000)
open(here + "/exits/rank0.json", "w").write('{"rank": 0}')
print("bye", flush=True)
"""


def test_all_files_are_told_before_the_last_word_and_then_removed(tmp_path: Path) -> None:
    run = Run(tmp_path, WRITES, mirrored=True)
    assert run.far.hear("exit")["returncode"] == 0
    assert run.far.files["events/rank0.jsonl"] == b"{}\n" * 20
    assert run.far.files["exits/rank0.json"] == b'{"rank": 0}'
    assert run.far.files["logs/node0.log"] == b"bye\n"
    run.far.hear("ended")
    assert len(run.far.files["checkpoints/latest.pt"]) == 100_000
    assert run.far.process.wait(5) == 0
    assert not run.mirror.exists()


def test_after_a_lost_channel_the_files_stay(tmp_path: Path) -> None:
    run = Run(tmp_path, STUBBORN, mirrored=True)
    run.started(3)
    assert run.far.process.stdin is not None
    run.far.process.stdin.close()
    until(run.nothing_left, 5.0)
    run.far.process.wait(5)
    assert (run.mirror / "logs" / "node0.log").read_text() == "child\n"


FLOOD = """
import os, sys
line = b"x" * 1023 + b"\\n"
for _ in range(100 * 1024): os.write(1, line)
os.write(1, b"the last words\\n")
"""


def test_a_flood_of_log_is_cut_in_the_middle_and_needs_no_memory(tmp_path: Path) -> None:
    run = Run(tmp_path, FLOOD, mirrored=True)
    run.far.hear("started")
    status = Path(f"/proc/{run.far.process.pid}/status")
    peak = 0
    while run.far.process.poll() is None:
        run.far.hear("file", "exit", "ended", limit_s=60)
        peak = max(peak, _peak_kib(status))
        if any(word.get("agent") == "ended" for word in run.far.heard):
            break
    run.far.hear("ended")
    log = run.far.files["logs/node0.log"]
    assert follow.LOG_HEAD < len(log) <= follow.LOG_HEAD + 3 * follow.LOG_TAIL
    assert log.endswith(b"the last words\n")
    assert 0 < peak < 64 << 10
    run.far.process.wait(5)


def _peak_kib(status: Path) -> int:
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def test_a_controller_that_does_not_read_stops_neither_the_node_nor_its_end(tmp_path: Path) -> None:
    """The relay never waits for its own words to go."""
    run = Run(tmp_path, FLOOD + "\nimport time; time.sleep(60)", mirrored=True, silence_s=3.0)
    until(lambda: len(tagged_with(run.name)) >= 2)
    # Not one word is read from now on.
    until(run.nothing_left, 3.0 + 6.0)
    run.far.process.wait(10)


def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "run-x-node0").write_text("in the way")
    run = Run(tmp_path, "pass", mirrored=True)
    assert "cannot prepare the run" in run.far.hear("error")["text"]
    assert run.far.process.wait(5) == 1


def test_a_port_is_held_until_the_channel_ends(tmp_path: Path) -> None:
    far = Far({"do": "port", "dir": str(tmp_path / "locks"), "fixed": 0, "silence_s": 20})
    port = far.hear()["port"]
    assert is_free(port)
    other = Far({"do": "port", "dir": str(tmp_path / "locks"), "fixed": port, "silence_s": 20})
    assert f"master_port = {port} is in use" in other.hear()["problem"]
    assert far.process.stdin is not None and far.process.stdout is not None
    far.process.stdin.write(b"?\n")
    far.process.stdin.flush()
    assert far.hear() == {"free": True}
    far.process.stdin.close()
    far.process.wait(5)
    other.process.wait(5)


def test_the_devices_of_a_node_can_be_asked_for() -> None:
    far = Far({"do": "probe", "method": "host", "limit_s": 10})
    told = far.hear()
    assert [device["key"] for device in told["devices"]] == [f"cpu{n}" for n in range(len(told["devices"]))]
    assert far.process.wait(5) == 0


@pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for a driver's library needs a C compiler")
def test_accelerators_are_found_through_the_drivers_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_library(tmp_path).parent))
    far = Far({"do": "probe", "method": "nvml", "limit_s": 10})
    told = far.hear()
    assert (told["driver_version"], len(told["devices"])) == ("1.2.3", 2)
    assert told["devices"][1] == {
        "name": "Zephyr Z1",
        "uuid": "GPU-fa4e0000-0000-0000-0000-000000000001",
        "pci": "00000000:02:00.0",
        "memory_bytes": 16 << 30,
        "index": 1,
    }
    assert far.process.wait(5) == 0


def test_no_order_is_told() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "fixtures" / "node")], input=b"no json\n", capture_output=True, timeout=20
    )
    assert (done.returncode, json.loads(done.stdout)) == (2, {"problem": "no order came on stdin"})
