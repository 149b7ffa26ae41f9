"""Whether each rank holds the device that was leased for it: both styles of binding, spellings, NUMA, the order."""

from __future__ import annotations

import socket
import types
from pathlib import Path
from typing import Any

import pytest

from fixtures.allocation import Allocation, Place, leased_identities
from fixtures.hardware import Found
from fixtures.node import preflight
from suite.plan import DeviceSpec
from tests.driver_toy import RUN

pytest.importorskip("torch")

from suite.drivers.events import Place as Rank
from suite.drivers.events import RunSpec
from suite.drivers.pytorch import host
from suite.drivers.pytorch.device import Device, EnvironmentProblem
from suite.drivers.pytorch.expectation import check_expectations

SPEC = {"type": "xpu", "plugin": "", "backend": "cpu:gloo,xpu:own", "identity": "uuid", "visible_devices": "XPU_SET"}
LEASED = ["ACC-0a1b", "ACC-2c3d"]


class Chips:
    """A torch module that shows some of the node's devices, in an order of its own."""

    def __init__(self, *uuids: str) -> None:
        self.uuids = uuids
        self.selected = -1

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.uuids)

    def set_device(self, index: int) -> None:
        self.selected = index

    def get_device_properties(self, index: int) -> Any:
        return types.SimpleNamespace(name="Acme A1", total_memory=1 << 30, uuid=self.uuids[index])


class Together:
    """All ranks of the run, the others as they would report themselves."""

    def __init__(self, *others: dict[str, Any]) -> None:
        self.others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


def opened(module: Chips, local_rank: int) -> Device:
    return Device.open(SPEC, local_rank, module=module)


def check(device: Device, local_rank: int, leased: list[list[str]], *others: dict[str, Any], node: int = 0) -> None:
    expect = {"world_size": 2, "precision": "fp32", "device_match": [], "devices": leased}
    run = RunSpec({**RUN, "device": {**SPEC, "shared": False}, "expect": expect})
    place = Rank(2 * node + local_rank, 2, local_rank, 2, node)
    check_expectations(run, place, device, {"compute": "fp32"}, Together(*others))


@pytest.mark.parametrize("local_rank", [0, 1])
def test_both_styles_of_binding_end_at_the_leased_device(local_rank: int) -> None:
    all_visible = opened(Chips(*LEASED), local_rank)
    one_visible_as_0 = opened(Chips(LEASED[local_rank]), local_rank)
    for device in (all_visible, one_visible_as_0):
        check(device, local_rank, [LEASED])
        assert device.identity == LEASED[local_rank]
    assert (all_visible.index, one_visible_as_0.index) == (local_rank, 0)


def test_a_device_of_somebody_else_is_no_slow_pass() -> None:
    with pytest.raises(EnvironmentProblem) as told:
        check(opened(Chips("ACC-ffff"), 0), 0, [LEASED])
    assert str(told.value) == (
        "rank 0: holds device ACC-ffff, which is not leased for this run (ACC-0a1b, ACC-2c3d):"
        " the visible-devices variable does not reach the ranks"
    )
    check(opened(Chips("ACC-ffff"), 0), 0, [LEASED, ["ACC-ffff"]], node=1)


def test_two_ranks_that_both_see_device_0_are_told() -> None:
    device = opened(Chips(LEASED[0]), 1)
    other = {"host": socket.gethostname(), "identity": LEASED[0], "problem": ""}
    with pytest.raises(EnvironmentProblem, match="ranks 0 and 1 hold one device, ACC-0a1b"):
        check(device, 1, [LEASED], other)


def test_another_order_is_told_and_no_error() -> None:
    device = opened(Chips(*reversed(LEASED)), 0)
    check(device, 0, [LEASED])
    assert {"what": "device_order", "why": "local rank 0 holds ACC-2c3d, leased as 1"} in device.fallbacks


@pytest.mark.parametrize(
    ("leased", "seen"),
    [("GPU-0A1B-22", "0a1b-22"), ("0a1b", "ACC-0a1b"), ("00000000:3B:00.0", "0000:3b:00.0"), ("SN7", "sn7")],
)
def test_spellings_of_one_device(leased: str, seen: str) -> None:
    check(opened(Chips(seen), 0), 0, [[leased]])


def test_what_a_framework_does_not_show_cannot_be_compared() -> None:
    class Mute(Chips):
        def get_device_properties(self, index: int) -> Any:
            return types.SimpleNamespace(name="Acme A1", total_memory=1)

    device = opened(Mute("x"), 0)
    assert "xpu:0" in device.identity
    check(device, 0, [LEASED])


def found(index: int, **keys: str) -> Found:
    return Found(key=f"k{index}", name="Acme A1", index=index, **keys)


def test_the_identities_that_the_ranks_must_find() -> None:
    spec = DeviceSpec(type="xpu", backend="gloo", identity="pci")
    places = (
        Place(node=0, host="a", devices=(found(1, pci="0000:3b:00.0"), found(0, pci="0000:5e:00.0"))),
        Place(node=1, host="b", devices=(found(0, pci="0000:3b:00.0"),)),
    )
    allocation = Allocation(places=places)
    assert leased_identities(spec, allocation) == (("0000:3b:00.0", "0000:5e:00.0"), ("0000:3b:00.0",))
    assert leased_identities(spec.model_copy(update={"identity": "uuid"}), allocation) == ()
    assert leased_identities(spec.model_copy(update={"identity": "host"}), allocation) == ()


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("-1\n", None), ("", None)])
def test_the_numa_node_of_a_device(tmp_path: Path, text: str, node: int | None) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(text)
    assert host.numa_node("0000:3b:00.0", tmp_path) == node
    assert preflight.numa_node("00000000:3B:00.0", tmp_path) == node
    assert host.numa_node(None, tmp_path) is preflight.numa_node("", tmp_path) is None
