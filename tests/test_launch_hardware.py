"""Devices: found by files, probed in a process that may hang, bounded by what the environment allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import hardware
from fixtures.allocation import allocate, unavailable
from fixtures.environment import rank_environment, visible_devices
from fixtures.hardware import Found, Probe, detect_vendor, probe, within
from fixtures.site import Site
from suite.catalog import Catalog, VendorFolder, load_catalog
from suite.errors import UsageProblem
from suite.plan import DeviceSpec, Machine
from tests.launch_toy import catalog, cores, toy_plan

GPUS = tuple(
    Found(key=f"GPU-{c * 4}-{c}", uuid=f"GPU-{c * 4}-{c}", name="Toy GPU", index=i) for i, c in enumerate("abcd")
)

FAKE_NVML = """
from types import SimpleNamespace as Names
class NVMLError(Exception): pass
nvmlLib = Names(_name="libtoy.so.1")
nvmlInit = lambda: None
nvmlDeviceGetCount = lambda: 2
nvmlSystemGetDriverVersion = lambda: b"600.1"
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetName = lambda handle: "Toy GPU"
nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}{handle}"
nvmlDeviceGetPciInfo = lambda handle: Names(busId=f"0000:0{handle}:00.0")
def nvmlDeviceGetMemoryInfo(handle):
    if handle: raise NVMLError("no")
    return Names(total=100, used=7)
nvmlDeviceGetComputeRunningProcesses = lambda handle: [Names(pid=5)]
"""


def toy_catalog(folder: Path, **detect: str) -> Catalog:
    for name, table in detect.items():
        vendor = folder / "suite" / "vendors" / name
        vendor.mkdir(parents=True)
        text = f'title = "{name}"\ntopologies = ["1x1"]\n[detect]\n{table}\n'
        text += '[device]\ntype = "cpu"\nbackend = "gloo"\nvisible_devices = "TOY_VISIBLE"\n[probe]\nmethod = "nvml"\n'
        (vendor / "vendor.toml").write_text(text)
    return load_catalog(folder / "suite")


def vendor(folder: Path) -> VendorFolder:
    return toy_catalog(folder, acme="").vendor("acme")


def fake_nvml(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pynvml.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_vendor_is_detected_by_device_files(tmp_path: Path) -> None:
    known = toy_catalog(tmp_path, acme='dev = ["/dev/acme[0-9]*"]', other='dev = ["/dev/other*"]')
    assert detect_vendor(known, tmp_path) is None
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "acme0").touch()
    assert detect_vendor(known, tmp_path) == "acme"


@pytest.mark.parametrize(("kind", "found"), [("0x030200", "acme"), ("0x120000", "acme"), ("0x020000", None)])
def test_a_vendor_is_detected_by_pci_ids_of_accelerators_only(tmp_path: Path, kind: str, found: str | None) -> None:
    card = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x1234\n")
    (card / "class").write_text(kind + "\n")
    assert detect_vendor(toy_catalog(tmp_path, acme='pci = ["0x1234"]'), tmp_path) == found


def test_two_vendors_are_a_question_to_the_user(tmp_path: Path) -> None:
    known = toy_catalog(tmp_path, acme='dev = ["/dev/a*"]', zeta='dev = ["/dev/z*"]')
    (tmp_path / "dev").mkdir()
    for name in ("a0", "z0"):
        (tmp_path / "dev" / name).touch()
    with pytest.raises(UsageProblem, match="devices of acme and zeta are present; say --vendor acme or --vendor zeta"):
        detect_vendor(known, tmp_path)


def test_a_broken_vendor_that_nobody_named_is_passed_over(tmp_path: Path) -> None:
    assert detect_vendor(toy_catalog(tmp_path, acme="nonsense = 1"), tmp_path) is None


def test_the_host_offers_its_cores() -> None:
    found = probe(catalog().vendor("cpu"))
    assert found.problem == ""
    assert len(found.devices) >= 1
    assert [device.key for device in found.devices] == [f"cpu{index}" for index in range(len(found.devices))]
    assert found.device_name


def test_nvml_is_probed_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(tmp_path, FAKE_NVML, monkeypatch)
    found = probe(vendor(tmp_path), environ={})
    assert (found.driver_version, found.device_name, found.library, found.problem) == (
        "600.1",
        "Toy GPU",
        "libtoy.so.1",
        "",
    )
    first, second = found.devices
    assert (first.key, first.pci, first.memory_bytes, first.index) == ("GPU-00", "0000:00:00.0", 100, 0)
    assert second.memory_bytes is None
    bounded = probe(vendor(tmp_path / "again"), environ={"TOY_VISIBLE": "1"})
    assert [device.index for device in bounded.devices] == [1]
    use = hardware.device_use(found.devices)
    assert (use["GPU-00"].used_bytes, use["GPU-00"].pids, use["GPU-11"].used_bytes) == (7, (5,), None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "class NVMLError(Exception): pass\ndef nvmlInit(): raise NVMLError('Driver Not Loaded')\n",
            "Driver Not Loaded",
        ),
        ("raise RuntimeError('broken install')\n", "broken install"),
        ("import os\nos._exit(3)\n", "exit status 3"),
    ],
)
def test_a_missing_driver_is_said_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    fake_nvml(tmp_path, text, monkeypatch)
    found = probe(vendor(tmp_path), environ={})
    assert found.devices == ()
    assert sentence in found.problem
    assert found.problem.startswith("no devices of acme can be used: ")


def test_a_hanging_driver_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(tmp_path, "import time\ntime.sleep(60)\n", monkeypatch)
    assert hardware.query_nvml(0.3) == {"problem": "the driver did not answer within 0.3 s"}


@pytest.mark.parametrize(
    ("visible", "indices", "problem"),
    [
        (None, [0, 1, 2, 3], ""),
        ("2,0", [2, 0], ""),
        ("0-2", [0, 1, 2], ""),
        (" 1 , 1 ", [1], ""),
        ("GPU-cccc", [2], ""),
        ("gpu-aaaa-a,GPU-dddd-d", [0, 3], ""),
        ("", [], "V='' hides every device; unset it, or name devices"),
        ("7,1", [1], "V=7,1: no such device as 7 (have: 4 devices, from index 0)"),
        ("MIG-1/2/3", [], "V=MIG-1/2/3: no such device as MIG-1/2/3 (have: 4 devices, from index 0)"),
    ],
)
def test_outer_bounds(visible: str | None, indices: list[int], problem: str) -> None:
    allowed, told = within(GPUS, visible, "V")
    assert [device.index for device in allowed] == indices
    assert told == problem


@given(st.text(max_size=30))
def test_no_outer_bound_breaks_the_probe(visible: str) -> None:
    allowed, problem = within(GPUS, visible, "V")
    assert set(allowed) <= set(GPUS)
    assert allowed or problem


def test_local_agents_that_stand_for_nodes_get_devices_of_their_own(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="2x2")
    placed = allocate(plan, Probe(devices=GPUS)).places
    assert [[device.index for device in place.devices] for place in placed] == [[0, 1], [2, 3]]
    assert unavailable(plan, Probe(devices=GPUS), local_nodes=2) is None


def test_what_cannot_be_had_is_said_with_what_there_is(tmp_path: Path) -> None:
    plan = toy_plan(tmp_path, topology="1x8")
    sentence = unavailable(plan, cores(2), local_nodes=1)
    assert sentence == "toy-pytorch-cpu-host-mini-1x8 needs 8 devices, and this host offers 2 of host"
    far = unavailable(toy_plan(tmp_path, topology="4x1"), cores(8), local_nodes=2)
    assert far is not None
    assert "needs 4 nodes, and this host stands for 2 of cpu; choose --topology 1x1" in far
    other = toy_plan(tmp_path, topology="1x2", machine_facts=Machine(name="X9", match=("X9*",)), machine="X9")
    wrong = unavailable(other, Probe(devices=GPUS, problem="GPU 4 fell off"), local_nodes=1)
    assert wrong is not None
    assert wrong.endswith("offers 0 of X9, and 4 of another kind (Toy GPU): GPU 4 fell off")


@pytest.mark.parametrize(("style", "value"), [("uuid", "GPU-aaaa-a,GPU-bbbb-b"), ("index", "0,1")])
def test_ranks_see_their_devices_in_the_order_of_local_ranks(tmp_path: Path, style: str, value: str) -> None:
    device = DeviceSpec(type="toy", backend="gloo", visible_devices="TOY_VISIBLE", visible_style=style)  # type: ignore[arg-type]
    plan = toy_plan(tmp_path, device=device)
    place = allocate(plan, Probe(devices=GPUS)).places[0]
    assert visible_devices(device, place) == value
    assert rank_environment(plan, Site(), place, tmp_path / "run.json")["TOY_VISIBLE"] == value


def test_the_environment_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/outside")
    plan = toy_plan(tmp_path, params={"threads": 3}, environment={"A": "vendor", "B": "vendor"})
    site = Site(environment={"B": "site", "TRAINMARK_RUN": "mine", "PYTHONPATH": "/site"})
    found = rank_environment(plan, site, allocate(plan, cores()).places[0], tmp_path / "run.json")
    assert (found["A"], found["B"]) == ("vendor", "site")
    assert found["TRAINMARK_RUN"] == str(tmp_path / "run.json")
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["GLOO_SOCKET_IFNAME"] == "lo"
    root, *rest = found["PYTHONPATH"].split(":")
    assert (Path(root) / "suite" / "plan.py").is_file()
    assert rest == ["/site", "/outside"]
