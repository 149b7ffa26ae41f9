"""device.py against chips that are not there: an out-of-tree type, modules that lack things, an asynchronous chip."""

from __future__ import annotations

import subprocess
import sys
import time
import types
from typing import Any

import pytest

from tests.driver_toy import ROOT, RUN

torch = pytest.importorskip("torch")

from suite.drivers.pytorch.device import Device, EnvironmentProblem  # noqa: E402
from suite.drivers.pytorch.tensors import map_tensors  # noqa: E402
from suite.drivers.pytorch.timing import WindowClock  # noqa: E402

# A known type stands in: torch.device() refuses names that nobody registered.
SPEC = {"type": "xpu", "plugin": "", "backend": "cpu:gloo,xpu:own", "identity": "uuid", "visible_devices": "XPU_SET"}


class Chip:
    """An asynchronous chip on a clock of its own: `launch` returns at once, `synchronize` waits."""

    def __init__(self, count: int = 2) -> None:
        self.done = time.perf_counter()
        self.count = count
        self.selected: int | None = None
        self.seeds: list[int] = []

    def launch(self, seconds: float) -> None:
        self.done = max(self.done, time.perf_counter()) + seconds

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.done - time.perf_counter()))

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def set_device(self, index: int) -> None:
        self.selected = index

    def manual_seed_all(self, seed: int) -> None:
        self.seeds.append(seed)

    def get_device_properties(self, index: int) -> Any:
        return types.SimpleNamespace(name="Acme A1", total_memory=1 << 30, uuid=f"ACME-{index}")


class TimingChip(Chip):
    """The same with events that carry the chip's own time."""

    def Event(self, enable_timing: bool) -> Any:  # torch's own spelling
        return ChipEvent(self)


class ChipEvent:
    """Happens when the chip comes to it, without anybody waiting."""

    def __init__(self, chip: Chip) -> None:
        self.chip, self.at = chip, 0.0

    def record(self) -> None:
        self.at = max(self.chip.done, time.perf_counter())

    def elapsed_time(self, other: ChipEvent) -> float:
        return (other.at - self.at) * 1000


def what(device: Device) -> set[str]:
    return {entry["what"] for entry in device.fallbacks}


def test_a_chip_is_reached_through_its_module() -> None:
    chip = TimingChip()
    device = Device.open(SPEC, 1, module=chip)
    assert (chip.selected, device.index, str(device.torch_device)) == (1, 1, "xpu:1")
    assert device.facts() == {
        "type": "xpu",
        "name": "Acme A1",
        "identity": "ACME-1",
        "index": 1,
        "memory_bytes": 1 << 30,
    }
    device.seed(9)
    assert chip.seeds == [9] and device.timer == "device_events" and device.backend == "cpu:gloo,xpu:own"


def test_what_a_chip_lacks_is_a_named_fallback() -> None:
    device = Device.open(SPEC, 0, module=Chip())
    assert device.timer == "sync_clock" and device.rng_state() is None and device.side_stream() is None
    assert what(device) == {"event_timing", "streams", "rng_state"}
    assert all(entry["why"] for entry in device.fallbacks)


def test_a_fallback_is_named_once_and_told_to_who_listens() -> None:
    device, told = Device.open(SPEC, 0, module=Chip()), []
    device.on_fallback = told.append
    device.rng_state()
    device.rng_state()
    assert [entry["what"] for entry in told] == ["rng_state"]


def test_recorded_capabilities_are_believed() -> None:
    device = Device.open(SPEC, 0, module=TimingChip(), capabilities={"event_timing": False, "pinned_memory": False})
    assert device.timer == "sync_clock" and {"event_timing", "pinned_memory"} <= what(device)


def test_events_that_count_backwards_are_not_used() -> None:
    class Backwards(TimingChip):
        def Event(self, enable_timing: bool) -> Any:
            return types.SimpleNamespace(record=lambda: None, elapsed_time=lambda other: -1.0)

    assert Device.open(SPEC, 0, module=Backwards()).timer == "sync_clock"


@pytest.mark.parametrize("make", [Chip, TimingChip])
def test_an_asynchronous_chip_is_timed_by_what_it_does_not_by_what_it_was_told(make: type[Chip]) -> None:
    chip = make()
    clock = WindowClock(Device.open(SPEC, 0, module=chip))
    clock.start()
    told = time.perf_counter()
    for _ in range(3):
        clock.waited()
        chip.launch(0.05)
        naive = time.perf_counter() - told
        clock.stepped()
        told = time.perf_counter()
        assert naive < 0.04, "launching takes no time: a clock without a synchronise is wrong"
    window = clock.close()
    assert window["step_s"] == pytest.approx([0.05] * 3, abs=0.03)
    assert window["window_s"] == pytest.approx(sum(window["step_s"]), abs=0.03)
    assert window["window_s"] >= 0.15


def test_work_before_the_window_is_not_in_it() -> None:
    chip = TimingChip()
    clock = WindowClock(Device.open(SPEC, 0, module=chip))
    chip.launch(0.2)
    clock.start()
    clock.waited()
    chip.launch(0.02)
    clock.stepped()
    assert clock.close()["window_s"] < 0.15


def test_a_wait_for_data_that_the_chip_did_not_notice_is_none() -> None:
    chip = TimingChip()
    clock = WindowClock(Device.open(SPEC, 0, module=chip))
    clock.start()
    clock.waited()
    chip.launch(0.2)
    clock.stepped()
    time.sleep(0.03)  # the loader is slow, the chip still busy
    clock.waited()
    chip.launch(0.05)
    clock.stepped()
    chip.synchronize()
    time.sleep(0.06)  # now the chip idles
    clock.waited()
    clock.stepped()
    hidden, seen = clock.close()["data_s"][1:]
    assert hidden == pytest.approx(0.0, abs=0.01) and seen >= 0.05


def test_windows_touch() -> None:
    clock = WindowClock(Device.open(RUN["device"], 0))
    clock.start()
    clock.waited()
    clock.stepped()
    clock.close()
    time.sleep(0.05)  # what the loop does between two windows belongs to the second
    clock.fetch()
    clock.waited()
    clock.stepped()
    second = clock.close()
    assert second["step_s"][0] >= 0.05 and second["data_s"][0] < 0.05


def test_a_host_interrupted_between_two_readings_does_not_contradict_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.open(RUN["device"], 0)
    stamp = device.stamp
    monkeypatch.setattr(device, "stamp", lambda: (stamp(), time.sleep(0.02))[0])
    clock = WindowClock(device)
    clock.start()
    for _ in range(2):
        clock.fetch()
        clock.waited()
        clock.stepped()
        told = clock.close()
        assert told["window_s"] == pytest.approx(sum(told["step_s"]), abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "rank", "count", "sentence"),
    [
        ({}, 0, 0, r"no device of type 'xpu' is visible here \(XPU_SET='7'\)"),
        ({}, 2, 2, "local rank 2 has no device: 2 of type 'xpu' are visible"),
        ({"plugin": "torch_acme"}, 0, 1, "plug-in 'torch_acme' cannot be imported"),
    ],
)
def test_a_missing_device_is_never_replaced_by_the_host(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, str], rank: int, count: int, sentence: str
) -> None:
    monkeypatch.setenv("XPU_SET", "7")
    with pytest.raises(EnvironmentProblem, match=sentence):
        Device.open({**SPEC, **spec}, rank, module=Chip(count))


def test_an_unknown_device_type_is_one_sentence() -> None:
    with pytest.raises(EnvironmentProblem, match="no device type 'acme': name its plug-in"):
        Device.open({"type": "acme", "backend": "gloo"}, 0)


def test_a_launcher_that_binds_one_device_to_each_rank_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPU_SET", "5")
    chip = Chip(count=1)
    chip.get_device_properties = lambda index: types.SimpleNamespace(name="Acme A1")  # type: ignore[method-assign]
    device = Device.open(SPEC, 3, module=chip)
    assert device.index == 0 and device.identity.endswith("xpu:0 of 5") and "identity" in what(device)


def test_the_host_is_a_device_without_fallbacks() -> None:
    device = Device.open(RUN["device"], 5)
    batch = {"x": torch.ones(2), "n": 3}
    assert device.to(device.pin(batch)) is batch
    assert device.memory()["peak_bytes"] > 1 << 20 and device.memory()["reserved_bytes"] is None
    assert (device.fallbacks, device.timer, device.index) == ([], "sync_clock", 0)


def test_tensors_are_found_in_any_nest() -> None:
    doubled = map_tensors(lambda tensor: tensor * 2, {"a": [torch.ones(1), ("b", torch.ones(1))], "c": None})
    assert doubled == {"a": [torch.tensor([2.0]), ("b", torch.tensor([2.0]))], "c": None}


PLUGIN = """
import sys, types, torch
torch.utils.rename_privateuse1_backend("acme")
calls = []
module = types.ModuleType("acme")
module.is_available = lambda: True
module.device_count = lambda: 4
module.set_device = lambda index: calls.append(("set_device", index))
module.synchronize = lambda: calls.append(("synchronize",))
module.get_rng_state = lambda index: torch.zeros(4, dtype=torch.uint8)
module.set_rng_state = lambda state, index: calls.append(("set_rng_state", index))
module.manual_seed_all = lambda seed: calls.append(("seed", seed))
module.max_memory_allocated = lambda index: 77
module.get_amp_supported_dtype = lambda: [torch.bfloat16]
module._is_in_bad_fork = lambda: False
torch._register_device_module("acme", module)
"""

USE = """
import sys
sys.path.insert(0, sys.argv[1])
from suite.drivers.pytorch.device import Device
device = Device.open({"type": "acme", "plugin": "torch_acme", "backend": "cpu:gloo,acme:accl", "identity": "uuid"}, 2)
import torch_acme, torch
device.seed(5)
device.set_rng_state(device.rng_state())
device.synchronize()
with device.autocast(torch.bfloat16):
    pass
assert str(device.torch_device) == "acme:2", device.torch_device
assert torch_acme.calls[0] == ("set_device", 2), torch_acme.calls
assert {("seed", 5), ("set_rng_state", 2), ("synchronize",)} <= set(torch_acme.calls), torch_acme.calls
assert device.memory()["peak_bytes"] == 77 and device.timer == "sync_clock"
assert {"event_timing", "streams"} <= {entry["what"] for entry in device.fallbacks}, device.fallbacks
print("reached")
"""


def test_an_out_of_tree_device_type_is_reached_by_its_plug_in(tmp_path: Any) -> None:
    # In a process of its own: torch lets the type be named only once.
    (tmp_path / "torch_acme.py").write_text(PLUGIN)
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run(
        [sys.executable, "use.py", str(ROOT)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "reached\n", done.stderr
