"""The monitor: samples of host and devices, in a process that may fail without anybody being hurt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.node import monitor, processes
from fixtures.node.processes import parse_stat
from suite.contamination import contamination
from tests.launch_toy import until


class Told(monitor.Problems):
    """Problems, kept."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, text: str) -> None:
        self.texts.append(text)


def samples(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def start(tmp_path: Path, **over: Any) -> tuple[int, int, Path]:
    path = tmp_path / "monitor.jsonl"
    spec = {"method": "proc", "period_s": 0.05, "path": str(path)}
    pid, problems = monitor.start(spec | over, os.getpid(), "monitor-test", close=[])
    return pid, problems, path


def stop(pid: int, problems: int) -> str:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    told = os.read(problems, 65536).decode()
    os.close(problems)
    return told


def told_all(sample: dict[str, Any]) -> bool:
    """The busy program has left its trace, and the sample is not the first one, which tells no share."""
    return (sample["host"]["tree_cpu_s"] or 0) > 0.2 and sample["host"]["cpu_percent"] is not None


def test_proc_samples_the_host_and_our_processes(tmp_path: Path) -> None:
    pid, problems, path = start(tmp_path)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until(lambda: any(map(told_all, samples(path)[:-1])))
    finally:
        busy.kill()
        busy.wait()
        told = stop(pid, problems)
    assert told == ""
    last = next(filter(told_all, samples(path)))
    assert last["devices"] == []
    assert 0 <= last["host"]["cpu_percent"] <= 100
    assert last["host"]["memory_bytes"] > 1 << 20
    assert last["host"]["tree_rss_bytes"] > 1 << 20
    assert abs(last["t_wall"] - time.time()) < 60


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"method": "nvml", "library": "libnowhere.so.1"}, "libnowhere.so.1"),
        ({"method": "acme"}, "method 'acme' is not available on this node (have: nvml, proc, command)"),
    ],
)
def test_a_method_that_does_not_work_is_told_and_the_host_is_sampled(
    tmp_path: Path, over: dict[str, str], sentence: str
) -> None:
    pid, problems, path = start(tmp_path, **over)
    until(lambda: len(samples(path)) >= 2)
    told = stop(pid, problems)
    assert sentence in told
    assert "only the host is sampled" in told
    assert samples(path)[1]["host"]["memory_bytes"] > 0


def test_a_failing_device_is_told_once_and_sampling_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[dict[str, object]]:
        raise RuntimeError("fell off the bus")

    monkeypatch.setattr(monitor, "_reader", lambda *_: broken)
    pid, problems, path = start(tmp_path)
    until(lambda: len(samples(path)) >= 3)
    assert stop(pid, problems) == "monitor: devices: RuntimeError: fell off the bus\n"


def test_the_monitor_ends_with_its_agent(tmp_path: Path) -> None:
    told = Told()
    monitor.watch({"path": str(tmp_path / "m"), "period_s": 0.05}, agent=1 << 22, run="x", problems=told)
    assert samples(tmp_path / "m") == []  # not its child: it left at once
    assert told.texts == []


class FakeDevice:
    """A device as fixtures.node.nvml shows it."""

    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)

    def sample(self) -> dict[str, object]:
        return {"utilisation": 50}

    def process_ids(self) -> list[int]:
        return self.pids


def test_foreign_processes_are_told_from_ours_and_from_those_we_cannot_see() -> None:
    child = subprocess.Popen(["sleep", "60"])
    tagged = subprocess.Popen(["sleep", "60"], env={**os.environ, processes.TAG: "run.r1"}, start_new_session=True)
    try:
        # Between fork and exec a child still has the environment of this process.
        until(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
        until(lambda: processes.TAG.encode() in Path(f"/proc/{tagged.pid}/environ").read_bytes())
        host = monitor.Host(child.pid)  # an agent without children: nothing is its own
        device = FakeDevice(child.pid, tagged.pid, 1 << 22)
        sample = monitor._device("gpu0", device, host, "run")  # type: ignore[arg-type]
        assert sample["foreign"] == [{"pid": child.pid, "name": "sleep"}]
        assert sample["unseen"] == 1
        own = monitor.Host(os.getpid())
        own.sample()
        assert monitor._device("gpu0", device, own, "run")["foreign"] == []  # type: ignore[arg-type]
    finally:
        for process in (child, tagged):
            process.kill()
            process.wait()


def test_foreign_work_counts_in_the_timed_window_only(tmp_path: Path) -> None:
    foreign = [{"id": "gpu0", "foreign": [{"pid": 9, "name": "game"}]}]
    lines = [{"t_wall": 10.0, "devices": []}, {"t_wall": 20.0, "devices": foreign}]
    (tmp_path / "monitor-node1.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"t_wall": 2')
    assert contamination(tmp_path, (0.0, 15.0)) is None
    assert contamination(tmp_path, (21.0, 30.0)) is None
    found = contamination(tmp_path, (15.0, 30.0))
    assert found is not None
    assert (found.status, found.category) == ("failed", "invalid_measurement")
    assert "gpu0 in the timed window: game (pid 9)" in found.reason


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_a_process_may_be_called_anything(name: str) -> None:
    process = parse_stat(f"42 ({name}) S 7 1 1 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 99 1000 55 1")
    assert process == processes.Process(pid=42, parent=7, state="S", name=name, cpu_ticks=100, rss_pages=55)
