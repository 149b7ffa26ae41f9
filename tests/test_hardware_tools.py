"""Vendors' tools while a run lasts: several at once, slow, stuck, broken or absent; nothing of it hurts the run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.allocation import Place
from fixtures.faults.shebang import interpreter_line
from fixtures.hardware import Found
from fixtures.launch_local import LocalLauncher
from fixtures.launcher import AgentSpec, monitor_spec
from fixtures.node import monitor, processes, tool
from fixtures.node.host import network
from fixtures.node.tool import Tools
from suite.vendor_spec import Monitor
from tests.launch_toy import tagged_with, until

DEVICES = [{"id": "ACC-a", "uuid": "ACC-a", "index": 0}, {"id": "ACC-b", "uuid": "ACC-b", "index": 1}]
FIELDS = {"index": {"column": "index"}, "power_w": {"column": "power"}}


def script(folder: Path, name: str, code: str) -> str:
    """A tool written in Python."""
    path = folder / name
    path.write_text(f"#!{interpreter_line()}\nimport os, sys, time\n{code}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def source(*command: str, **keys: Any) -> dict[str, Any]:
    return {"command": list(command), "format": "csv", "fields": FIELDS, **keys}


def tools(*sources: dict[str, Any], limit_s: float = 5.0) -> Tools:
    return Tools(sources, DEVICES, limit_s=limit_s, env={})


def living(word: str) -> list[int]:
    """Living processes with that word in their command line."""
    found = [process.pid for process in processes.snapshot().values() if process.state not in "ZX"]
    return [pid for pid in found if word in " ".join(processes.command(pid))]


def test_several_tools_make_one_row_a_device(tmp_path: Path) -> None:
    usage = script(tmp_path, "usage", "print('index,load\\n0,50\\n1,60')")
    power = script(tmp_path, "power", "print('W=' + sys.argv[2] + '5')")
    rows, problems = tools(
        source(usage, fields={"index": {"column": "index"}, "utilisation": {"column": "load"}}),
        source(power, "-d", "{index}", format="keyvalue", delimiter="=", fields={"power_w": {"column": "W"}}),
    ).read()
    assert problems == []
    assert [(row["index"], row["utilisation"], row["power_w"]) for row in rows] == [("0", 50.0, 5.0), ("1", 60.0, 15.0)]
    assert rows[0]["uuid"] == "ACC-a"


def test_tools_speak_plain_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    code = "print('index,power'); print('0,' + ('1.5' if os.environ['LC_ALL'] == 'C' else '1,5'))"
    rows, problems = tools(source(script(tmp_path, "locale", code))).read()
    assert (rows, problems) == ([{"index": "0", "power_w": 1.5}], [])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "sys.exit('Failed to initialise: driver not loaded')",
            "exit status 1: Failed to initialise: driver not loaded",
        ),
        ("os.kill(os.getpid(), 11)", "exit status -11"),
        ("print('no devices found')", "finds no row"),
        ("sys.stdout.buffer.write(bytes(range(256)) * 3)", "no row has any of the columns index, power"),
        ("print('index,power'); print('0,hot')", "power_w: 'hot' is not a number"),
    ],
)
def test_a_broken_tool_is_told_and_the_other_one_read(tmp_path: Path, code: str, words: str) -> None:
    good = script(tmp_path, "good", "print('index,power\\n1,7')")
    rows, problems = tools(source(script(tmp_path, "broken", code)), source(good)).read()
    assert {"index": "1", "power_w": 7.0} in rows
    assert len(problems) == 1
    assert problems[0].startswith(str(tmp_path / "broken") + ": ")
    assert words in problems[0]


def test_an_absent_tool_and_one_without_permission(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    rows, problems = tools(source(str(tmp_path / "nowhere")), source(str(tmp_path / "plain"))).read()
    assert rows == []
    assert problems == [
        f"{tmp_path}/nowhere: cannot be run: No such file or directory; install it, or correct `command`",
        f"{tmp_path}/plain: cannot be run: Permission denied; install it, or correct `command`",
    ]


def test_a_tool_that_sleeps_for_ever_is_killed_with_what_it_started(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '60.25']); print('index,power', flush=True); time.sleep(60)"
    rows, problems = tools(source(script(tmp_path, "sleeper", code)), limit_s=0.5).read()
    assert rows == []
    assert problems == [f"{tmp_path}/sleeper: did not answer within 0.5 s and was killed"]
    until(lambda: not living("60.25") and not living(str(tmp_path)))


def test_a_child_that_keeps_the_pipe_open_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '60.5']); print('index,power\\n0,3')"
    try:
        rows, problems = tools(source(script(tmp_path, "forker", code)), limit_s=30).read()
        assert (rows, problems) == ([{"index": "0", "power_w": 3.0}], [])
    finally:
        for pid in living("60.5"):
            os.kill(pid, signal.SIGKILL)


def test_a_tool_that_cannot_be_killed_is_left_behind_and_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = script(tmp_path, "stuck", "time.sleep(60)")
    asked = tools(source(stuck), limit_s=0.3)
    # A process in an uninterruptible wait takes no signal: as if killing had no effect.
    monkeypatch.setattr(tool.os, "killpg", lambda *_: None)
    _, first = asked.read()
    assert "does not die of SIGKILL (pid " in first[0]
    (pid,) = living(stuck)
    _, second = asked.read()
    assert second == [f"{stuck}: still hangs (pid {pid}) and cannot be killed"]
    assert living(stuck) == [pid]
    os.kill(pid, signal.SIGKILL)
    # Its command line is gone before its parent can wait for it, and only the latter tells that it is dead.
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    monkeypatch.undo()
    assert "was killed" in asked.read()[1][0], "once it is gone it is tried again"


class Told(monitor.Problems):
    """Problems, kept."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, text: str) -> None:
        self.texts.append(text)


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a monitor's file."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.is_file() else []


def sampled(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["devices"]]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Any]:
    """Starts a monitor of the method `command`; whatever it left is ended."""
    started: list[tuple[int, int]] = []

    def start(*sources: dict[str, Any], **keys: Any) -> tuple[Path, int]:
        path = tmp_path / "monitor.jsonl"
        spec = {"method": "command", "period_s": 0.1, "path": str(path), "devices": DEVICES, "sources": list(sources)}
        pid, reading = monitor.start(spec | keys, os.getpid(), "tools-test", close=[])
        started.append((pid, reading))
        return path, reading

    yield start
    for pid, reading in started:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
    until(lambda: not living(str(tmp_path)))


def test_the_monitor_writes_what_the_tools_say_with_the_real_period(tmp_path: Path, watched: Any) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        code = f"time.sleep(0.3); print('uuid,power,pids\\nACC-a,250,\\nACC-b,N/A,{other.pid}')"
        fields = {"uuid": {"column": "uuid"}, "power_w": {"column": "power"}, "pids": {"column": "pids"}}
        path, reading = watched(source(script(tmp_path, "smi", code), fields=fields))
        until(lambda: len(sampled(path)) >= 3)
    finally:
        other.kill()
        other.wait()
    first, second, *_ = sampled(path)
    assert first["devices"][0] == {"id": "ACC-a", "power_w": 250.0, "foreign": [], "unseen": 0}
    assert first["devices"][1]["power_w"] is None
    assert first["period_s"] is None
    assert second["period_s"] == pytest.approx(second["t_wall"] - first["t_wall"], abs=0.01)
    assert second["took_s"] >= 0.3
    assert "so that devices are sampled more rarely than every 0.1 s" in os.read(reading, 65536).decode()
    hosts = [line for line in lines(path) if "host" in line]
    assert len(hosts) > 2
    assert hosts[0]["host"]["net_rx_bytes"] >= 0


def test_a_minimum_period_is_kept(tmp_path: Path, watched: Any) -> None:
    counter = tmp_path / "count"
    code = f"open({str(counter)!r}, 'a').write('x'); print('index,power\\n0,1\\n1,1')"
    path, _ = watched(source(script(tmp_path, "smi", code)), min_period_s=60)
    until(lambda: len(lines(path)) >= 8)
    assert counter.read_text() == "x"
    assert [len(line["devices"]) for line in sampled(path)] == [2]


def test_a_stuck_tool_does_not_stop_the_host_samples(tmp_path: Path, watched: Any) -> None:
    path, reading = watched(source(script(tmp_path, "smi", "time.sleep(60)")), timeout_s=0.3)
    until(lambda: len(lines(path)) >= 12)
    assert sampled(path) == [] or all(line["devices"] == [] for line in sampled(path))
    assert "did not answer within 0.3 s and was killed" in os.read(reading, 65536).decode()


def test_a_pattern_without_end_costs_only_its_process(
    tmp_path: Path, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fixtures.node import sampler

    monkeypatch.setattr(sampler, "PARSE_S", 0.3)
    code = "print('a' * 60 + '!')"
    endless = source(script(tmp_path, "smi", code), format="regex", pattern=r"(?P<index>(a+)+)$")
    path, reading = watched(endless, timeout_s=0.3)
    told = ""

    def given_up() -> bool:
        nonlocal told
        told += os.read(reading, 65536).decode() if monitor_has_news(reading) else ""
        return "devices are no longer sampled" in told

    until(given_up, 20)
    assert "is a `pattern` without end?" in told
    seen = len(lines(path))
    until(lambda: len(lines(path)) > seen + 2)


def monitor_has_news(reading: int) -> bool:
    """Whether a problem waits to be read."""
    return bool(select.select([reading], [], [], 0)[0])


def test_a_device_that_the_tools_do_not_show_is_told(tmp_path: Path, watched: Any) -> None:
    path, reading = watched(source(script(tmp_path, "smi", "print('index,power\\n1,5\\n7,5')")))
    until(lambda: len(sampled(path)) >= 1)
    assert [device["id"] for device in sampled(path)[0]["devices"]] == ["ACC-b"]
    until(lambda: monitor_has_news(reading))
    assert os.read(reading, 65536).decode() == "monitor: the tools do not show device ACC-a\n"


def agent(folder: Path, tool_path: str, argv: list[str]) -> tuple[Any, str]:
    """An agent with a monitor of the method `command`."""
    run = f"tool-test-{os.getpid()}-{folder.name}"
    spec = Monitor(method="command", command=(tool_path,), format="csv", fields=FIELDS, period_s=0.1, timeout_s=30)  # type: ignore[arg-type]
    place = Place(node=0, host="here", devices=(Found(key="ACC-a", name="A", index=0),))
    watching = monitor_spec(spec, place, path=folder / "monitor.jsonl", library="", sandbox={})
    log = folder / "log"
    started = LocalLauncher().start(
        AgentSpec(run=run, node=0, argv=tuple(argv), cwd=str(folder), log=str(log), monitor=watching, total_s=60)
    )
    return started, run


def ended(handle: Any) -> list[dict[str, Any]]:
    """All that an agent says until it is gone."""
    said: list[dict[str, Any]] = []
    until(lambda: said.extend(handle.poll()) or handle.gone())
    handle.kill()
    return said


def test_a_run_ends_although_its_tool_hangs_and_takes_it_along(tmp_path: Path) -> None:
    hanging = script(tmp_path, "smi", "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    wait = f"import time, os\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
    handle, run = agent(tmp_path, hanging, [sys.executable, "-c", wait])
    until(lambda: living(hanging))
    (tmp_path / "go").touch()
    said = ended(handle)
    last = said[-1]
    assert (last["agent"], last["killed"], last["leftover"]) == ("ended", [], [])
    assert [word["returncode"] for word in said if word["agent"] == "exit"] == [0]
    until(lambda: not living(hanging) and not tagged_with(run))


@pytest.mark.parametrize("which", ["tool", "side process"])
def test_what_waits_in_a_driver_is_no_leftover(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """Its state is told by /proc; here sleeping processes are shown as ones that no signal reaches."""
    run = f"stuck-test-{os.getpid()}"
    marks = {processes.TAG: run, "PATH": os.environ["PATH"]}
    stuck = subprocess.Popen(["sleep", "60"], env=marks | ({processes.TOOL: "1"} if which == "tool" else {}))
    plain = subprocess.Popen(["sleep", "60"], env=marks)
    try:
        until(lambda: {process.pid for process in processes.tagged(run)} == {stuck.pid, plain.pid})
        real = processes.parse_stat

        def shown(text: str) -> processes.Process:
            process = real(text)
            named = which == "side process" and process.pid == stuck.pid
            return process._replace(state="D", name=processes.SIDE if named else process.name)

        monkeypatch.setattr(processes, "parse_stat", shown)
        assert [process.pid for process in processes.tagged(run)] == [plain.pid]
    finally:
        for process in (stuck, plain):
            process.kill()
            process.wait()


def test_side_processes_are_known_by_name(tmp_path: Path, watched: Any) -> None:
    path, _ = watched(source(script(tmp_path, "smi", "print('index,power\\n0,1\\n1,1')")))
    until(lambda: sampled(path))

    def names() -> list[str]:
        return [process.name for process in processes.descendants(os.getpid())]

    # The monitor and its sampler; and, until it has become the command, what the sampler starts.
    until(lambda: names().count(processes.SIDE) == 2)


def test_the_network_of_a_host(tmp_path: Path) -> None:
    head = "Inter-|   Receive\n face |bytes\n"
    table = "    lo: 900 0 0 0 0 0 0 0 900 0\n  eth0: 100 1 0 0 0 0 0 0 40 1\n eth1:5 0 0 0 0 0 0 0 6 0\n"
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/dev").write_text(head + table)
    assert network(tmp_path) == {"net_rx_bytes": 105, "net_tx_bytes": 46}
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    (port / "port_rcv_data").write_text("25\n")
    (port / "port_xmit_data").write_text("10\n")
    assert network(tmp_path)["rdma_rx_bytes"] == 100
    assert network(tmp_path / "empty") == {"net_rx_bytes": 0, "net_tx_bytes": 0}
