"""What a node is looked over for before anything starts there, and what the controller makes of the report."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults.shebang import interpreter_line
from fixtures.launcher import MonitoredDevice, MonitorSpec
from fixtures.node import preflight
from fixtures.preflight import LEAST_FREE_BYTES, MOST_SKEW_S, needed_bytes, preflight_spec, record_preflight
from tests.launch_toy import toy_plan

FIELDS = {
    "uuid": {"column": "uuid"}, "ecc_errors": {"column": "ecc"}, "power_limit_w": {"column": "cap"},
    "throttle": {"column": "why"}, "pids": {"column": "pids"},
}  # fmt: skip


def smi(folder: Path, output: str, code: int = 0) -> dict[str, Any]:
    """The devices of an invented vendor, read by its tool."""
    tool = folder / "smi"
    tool.write_text(f"#!{interpreter_line()}\nimport sys\nprint({output!r})\nsys.exit({code})\n")
    tool.chmod(0o755)
    devices = [{"id": "ACC-a", "uuid": "ACC-a", "pci": "0000:3b:00.0"}, {"id": "ACC-b", "uuid": "ACC-b"}]
    source = {"command": [str(tool)], "format": "csv", "fields": FIELDS}
    return {"method": "command", "devices": devices, "sources": [source], "timeout_s": 10}


def facts(report: dict[str, object]) -> dict[str, Any]:
    found = report["facts"]
    assert isinstance(found, dict)
    return found


def sentences(report: dict[str, object]) -> list[tuple[str, str]]:
    found = report["problems"]
    assert isinstance(found, list)
    return [(problem["category"], problem["text"]) for problem in found]


def test_devices_are_recorded_and_foreign_processes_reported(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        table = f"uuid,ecc,cap,why,pids\nACC-a,0,400 W,none,{other.pid}\nACC-b,2,N/A,hot,"
        report = preflight.look(smi(tmp_path, table))
    finally:
        other.kill()
        other.wait()
    first, second = facts(report)["devices"]
    assert (first["id"], first["present"], first["ecc_errors"], first["power_limit_w"]) == ("ACC-a", True, 0.0, 400.0)
    assert (second["ecc_errors"], second["power_limit_w"], second["throttle"]) == (2.0, None, "hot")
    assert report["remarks"] == [
        f"device ACC-a is in use by sleep (pid {other.pid}), which is none of ours and is left alone"
    ]
    assert sentences(report) == []


def test_a_device_that_is_gone_forbids_the_start(tmp_path: Path) -> None:
    report = preflight.look(smi(tmp_path, "uuid,ecc,cap,why,pids\nACC-a,0,1,x,"))
    assert sentences(report) == [("environment", "device ACC-b is not there any more; look at the driver's log")]
    assert [device["present"] for device in facts(report)["devices"]] == [True, False]


def test_a_tool_that_fails_does_not_make_the_devices_absent(tmp_path: Path) -> None:
    report = preflight.look(smi(tmp_path, "oops", code=3))
    assert sentences(report) == []
    assert report["remarks"] == [f"preflight: {tmp_path}/smi: exit status 3: oops"]


def test_no_driver_is_a_remark(tmp_path: Path) -> None:
    wanted = {"method": "nvml", "library": "libnowhere.so.1", "devices": [{"id": "a", "uuid": "GPU-a"}]}
    report = preflight.look(wanted)
    remarks = report["remarks"]
    assert isinstance(remarks, list)
    assert "libnowhere.so.1" in remarks[0]


def test_room_on_the_disk(tmp_path: Path) -> None:
    report = preflight.look({"run_dir": str(tmp_path), "disk_bytes": 1 << 60})
    ((category, text),) = sentences(report)
    assert category == "provision"
    assert f"MiB are free in {tmp_path}, the run needs about {1 << 40}" in text
    assert text.endswith("free some, or say --results DIR")
    assert facts(preflight.look({"run_dir": str(tmp_path), "disk_bytes": 1}))["disk"]["free_bytes"] > 1


def test_three_files_of_the_data_are_read(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / "shards" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "shards" / str(number % 2) / f"{number}.bin").write_bytes(b"x" * number)
    (tmp_path / "vocab").write_text("ab")
    report = preflight.look({"data": [str(tmp_path / "shards"), str(tmp_path / "vocab")]})
    assert sentences(report) == []
    read = facts(report)["data"]
    assert [Path(item["path"]).name for item in read] == ["0.bin", "8.bin", "7.bin", "vocab"]
    assert [item["bytes_read"] for item in read] == [0, 8, 7, 2]


@pytest.mark.parametrize("which", ["absent", "folder of nothing", "link to nowhere"])
def test_data_that_cannot_be_read_forbids_the_start(tmp_path: Path, which: str) -> None:
    path = tmp_path / "data"
    if which == "folder of nothing":
        path.mkdir()
    elif which == "link to nowhere":
        path.symlink_to(tmp_path / "gone")
    ((category, text),) = sentences(preflight.look({"data": [str(path)]}))
    assert category == "environment"
    assert text.startswith(f"{path} cannot be read (")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        report = preflight.look({"ports": [port]})
    assert sentences(report) == [
        ("provision", f"port {port} is in use; end what listens there, or set [hosts] master_port")
    ]
    assert facts(report)["ports"] == {str(port): "in use"}


def ready(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 0.05)[0])


def test_a_file_system_that_hangs_is_said_in_time(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    report = preflight.look_aside(
        {"data": [str(tmp_path / "pipe")]}, [], 0.3, wait=lambda seconds, reading: ready(reading), stopped=lambda: False
    )
    os.waitpid(-1, 0)
    assert sentences(report) == [
        ("environment", "the preflight was not over after 0.3 s: a driver or a file system hangs")
    ]


def message(**over: Any) -> dict[str, Any]:
    return {"t_wall": 1000.0, "facts": {"memory": {"total_bytes": 1}}, "remarks": ["busy"], "problems": []} | over


def test_the_report_is_kept_with_the_nodes_clock(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text('{"host": "here"}')
    assert record_preflight(tmp_path, 0, "a", message(), 999.5) is None
    assert record_preflight(tmp_path, 1, "b", message(), 1001.0) is None
    kept = json.loads((tmp_path / "environment.json").read_text())
    assert kept["host"] == "here"
    assert kept["preflight"]["node0"] == {
        "host": "a", "clock_skew_s": 0.5, "memory": {"total_bytes": 1}, "remarks": ["busy"]
    }  # fmt: skip
    assert kept["preflight"]["node1"]["clock_skew_s"] == -1.0


def test_a_clock_far_off_and_other_problems_are_one_sentence(tmp_path: Path) -> None:
    late = record_preflight(tmp_path, 1, "b", message(), 1000.0 + MOST_SKEW_S + 5)
    assert late is not None
    assert (late.status, late.category) == ("error", "environment")
    assert late.reason == "node 1 on b: its clock is 65 s behind the controller's; let NTP set it"
    problems = [{"category": "provision", "text": "no room"}, {"category": "environment", "text": "no data"}]
    both = record_preflight(tmp_path, 0, "a", message(problems=problems), 1000.0)
    assert both is not None
    assert (both.category, both.reason) == ("provision", "node 0 on a: no room; no data")


def test_what_an_agent_is_asked_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "start.pt").write_bytes(b"x" * 1000)
    params = {"train_data": "train.h5", "eval_data": "case:eval.json", "init_checkpoint": "start.pt"}
    plan = toy_plan(tmp_path, params=params)
    watching = MonitorSpec(method="nvml", period_s=1, path="m", devices=(MonitoredDevice(id="a"),), library="lib")
    asked = preflight_spec(plan, watching, folder=tmp_path / "run", data_dir=tmp_path, port=29501)
    assert asked.data == (str(tmp_path / "train.h5"), str(tmp_path / "start.pt"))
    assert asked.disk_bytes == needed_bytes(plan, tmp_path) == LEAST_FREE_BYTES + 6000
    assert (asked.ports, asked.method, asked.library, asked.devices[0].id) == ((29501,), "nvml", "lib", "a")
    without = preflight_spec(plan, watching, folder=tmp_path, data_dir=None, port=0)
    assert (without.data, without.ports, without.disk_bytes) == ((), (), LEAST_FREE_BYTES)
