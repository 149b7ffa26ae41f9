"""Hosts with the chips of vendors that nobody here has run: told by their files, probed by stand-ins of their tools."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fixtures.faults.shebang import interpreter_line
from fixtures.hardware import detect_vendor, device_use, probe
from suite.catalog import load_catalog
from tests.vendor_card import MIB, two
from tests.vendor_tools import TOOLS

CATALOG = load_catalog(Path(__file__).resolve().parent.parent / "suite")


@pytest.mark.parametrize(
    ("cards", "vendor"),
    [
        ([("0x1002", "0x74a1", "0x120000")], "amd"),
        ([("0x1002", "0x7408", "0x038000")], "amd"),
        ([("0x1002", "0x744c", "0x030000")], None),
        ([("0x19e5", "0xd802", "0x120000"), ("0x19e5", "0x1711", "0x030000")], "ascend"),
        ([("0x19e5", "0x1711", "0x030000")], None),
        ([("0x8086", "0x0bd5", "0x038000")], "intel-xpu"),
        ([("0x8086", "0x4680", "0x030000")], None),
        ([("0x1da3", "0x1020", "0x120000")], "intel-gaudi"),
        ([("0x1e3e", "0x0002", "0x120000")], "iluvatar"),
        ([("0xcabc", "0x0370", "0x120000")], "cambricon"),
        ([("0x10de", "0x2335", "0x030200"), ("0x8086", "0x4680", "0x030000")], "nvidia"),
        ([("0x10de", "0x2335", "0x030200"), ("0x1002", "0x164e", "0x030000")], "nvidia"),
    ],
)
def test_a_chip_is_detected_and_its_makers_other_products_are_not(
    tmp_path: Path, cards: list[tuple[str, str, str]], vendor: str | None
) -> None:
    for place, (maker, device, kind) in enumerate(cards):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{place}:00.0"
        folder.mkdir(parents=True)
        for name, value in (("vendor", maker), ("device", device), ("class", kind)):
            (folder / name).write_text(value + "\n")
    assert detect_vendor(CATALOG, tmp_path) == vendor


@pytest.mark.parametrize(
    ("files", "vendor"),
    [
        (["davinci0", "davinci_manager"], "ascend"),
        (["kfd", "mkfd", "dri/renderD128"], "hygon"),
        (["kfd", "dri/renderD128"], None),
        (["xpu0", "xpuctrl"], "kunlunxin"),
        (["mtgpu.0"], "mthreads"),
        (["accel/accel0"], None),
    ],
)
def test_a_chip_is_detected_by_files_that_are_its_own(tmp_path: Path, files: list[str], vendor: str | None) -> None:
    for name in files:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert detect_vendor(CATALOG, tmp_path) == vendor


def stand_in(folder: Path, name: str, answers: dict[str, str]) -> None:
    """A tool on the PATH that answers each command line with a text."""
    code = f"#!{interpreter_line()}\nimport sys\nanswers = {answers!r}\n"
    code += "sys.stdout.write(answers[' '.join(sys.argv[1:])])\n"
    path = folder / name
    path.write_text(code, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("vendor", ["amd", "ascend", "hygon"])
def test_a_host_with_its_tools_is_probed_and_its_occupants_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    spec, tools, cards = CATALOG.vendor(vendor).spec, TOOLS[vendor], two(TOOLS[vendor].name)
    answers: dict[str, str] = {}
    for source, output in (
        *zip(spec.probe.sources, tools.probe, strict=True),
        *zip(spec.monitor.sources, tools.monitor, strict=True),
    ):
        answers[" ".join(source.command[1:])] = output(cards)
    stand_in(tmp_path, spec.probe.command[0], answers)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = probe(CATALOG.vendor(vendor), environ={})
    assert (found.problem, found.device_name) == ("", tools.name)
    assert [device.pci.upper() for device in found.devices] == ["0000:C1:00.0", "0000:C2:00.0"]
    use = device_use(found.devices, CATALOG.vendor(vendor))
    first = use[found.devices[0].key]
    assert first.used_bytes == int(cards[0].used) * MIB
    if vendor == "amd":  # HIP counts backwards here, and amd-smi does not
        assert [device.index for device in found.devices] == [1, 0]
    if vendor != "hygon":
        assert first.pids == (4711,)
    bounded = probe(CATALOG.vendor(vendor), environ={spec.device.visible_devices: "0"})
    assert [device.index for device in bounded.devices] == [0]


def test_a_host_without_the_tool_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe(CATALOG.vendor("ascend"), environ={})
    assert found.devices == ()
    assert found.problem.startswith("no devices of ascend can be used: npu-smi: cannot be run: No such file")
