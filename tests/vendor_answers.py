"""What vendors' tools print for programs, as JSON or CSV, in the form that each is known to have, of any devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.vendor_card import Card, with_unit


def _quantity(text: str, unit: str) -> object:
    """amd-smi's: an object with value and unit, or a word in its place."""
    try:
        return {"value": float(text), "unit": unit}
    except ValueError:
        return text


def _wrapped(cards: Sequence[Card], row: Callable[[Card], dict[str, Any]]) -> str:
    return json.dumps({"gpu_data": [row(card) for card in cards]}, indent=4)


def amd_list(cards: Sequence[Card]) -> str:
    """`amd-smi list --json`: a bare list."""
    return json.dumps(
        [{"gpu": c.number, "bdf": c.bus.lower(), "uuid": f"00ff74a1-0000-1000-80e0-{c.number:012}"} for c in cards]
    )


def amd_enumeration(cards: Sequence[Card]) -> str:
    """`amd-smi list -e --json`, of a host on which HIP counts backwards."""
    rows = [
        {"gpu": c.number, "bdf": c.bus.lower(), "render": f"renderD{128 + c.number}",
         "hip_id": len(cards) - 1 - c.number, "hip_uuid": f"GPU-{c.number:016x}"}
        for c in cards
    ]  # fmt: skip
    return json.dumps(rows)


def amd_static(cards: Sequence[Card]) -> str:
    """`amd-smi static --json` since ROCm 7, after the warning of a user who is in no group."""
    return "WARNING: user is missing the following groups: render\n" + _wrapped(
        cards,
        lambda c: {
            "gpu": c.number,
            "asic": {"market_name": c.name, "vendor_id": "0x1002"},
            "bus": {"bdf": c.bus.lower(), "max_pcie_width": 16},
            "vram": {"type": "HBM", "size": {"value": int(c.total), "unit": "MB"}},
            "driver": {"name": "amdgpu", "version": "6.12.12"},
        },
    )


def amd_metric(cards: Sequence[Card]) -> str:
    """`amd-smi metric --json`."""
    return _wrapped(
        cards,
        lambda c: {
            "gpu": c.number,
            "usage": {"gfx_activity": _quantity(c.load, "%"), "umc_activity": _quantity("1", "%")},
            "power": {"socket_power": _quantity(c.power, "W"), "gfx_voltage": "N/A"},
            "clock": {"gfx_0": {"clk": _quantity("2100", "MHz"), "clk_locked": "DISABLED"}},
            "temperature": {"edge": "N/A", "hotspot": _quantity(c.temperature, "C")},
            "ecc": {"total_correctable_count": 3, "total_uncorrectable_count": 0},
            "energy": {"total_energy_consumption": _quantity("1234.5", "J")},
            "mem_usage": {"total_vram": _quantity(c.total, "MB"), "used_vram": _quantity(c.used, "MB")},
        },
    )


def amd_process(cards: Sequence[Card]) -> str:
    """`amd-smi process --json`: a sentence where there is none."""

    def row(card: Card) -> dict[str, Any]:
        infos = [
            {"process_info": {"name": "python3.12", "pid": p, "mem_usage": {"value": 99, "unit": "B"}}}
            for p in card.pids
        ]
        return {"gpu": card.number, "process_list": infos or [{"process_info": "No running processes detected"}]}

    return json.dumps([row(card) for card in cards])


def _keyed(cards: Sequence[Card], row: Callable[[Card], dict[str, str]]) -> str:
    return json.dumps({f"card{c.number}": row(c) for c in cards})


def hygon_bus(cards: Sequence[Card]) -> str:
    """`hy-smi --showbus --json`."""
    return _keyed(cards, lambda c: {"PCI Bus": c.bus.lower()})


def hygon_product(cards: Sequence[Card]) -> str:
    """`hy-smi --showproductname --json`."""
    return _keyed(cards, lambda c: {"Card Series": c.name, "Card Vendor": "C-3000 IC Design Co., Ltd."})


def hygon_memory(cards: Sequence[Card]) -> str:
    """`hy-smi --showmeminfo vram --json`."""
    return _keyed(cards, lambda c: {"vram Total Memory (MiB)": c.total, "vram Total Used Memory (MiB)": c.used})


def gaudi_probe(cards: Sequence[Card]) -> str:
    """`hl-smi -Q … -f csv`."""
    head = "module_id, uuid, bus_id, name, driver_version, memory.total [MiB]\n"
    return head + "".join(
        f"{c.number}, 01P0-HL2080A0-{c.number}, {c.bus.lower()}, {c.name}, 1.21.0-abc, {c.total} MiB\n" for c in cards
    )


def gaudi_monitor(cards: Sequence[Card]) -> str:
    """`hl-smi -Q … -f csv`."""
    head = "module_id, uuid, utilization.aip [%], memory.used [MiB], power.draw [W], temperature.aip [C]\n"
    rows = (
        f"{c.number}, 01P0-HL2080A0-{c.number}, {with_unit(c.load, ' %')}, {with_unit(c.used, ' MiB')},"
        f" {with_unit(c.power, ' W')}, {with_unit(c.temperature, ' C')}\n"
        for c in cards
    )
    return head + "".join(rows)


def xpu_discovery(cards: Sequence[Card]) -> str:
    """`xpu-smi discovery -j`."""
    rows = [
        {
            "device_id": c.number,
            "device_name": c.name,
            "device_type": "GPU",
            "pci_bdf_address": c.bus.lower(),
            "pci_device_id": "0xbd5",
        }
        for c in cards
    ]
    return json.dumps({"device_list": rows}, indent=4)


def xpu_dump(cards: Sequence[Card]) -> str:
    """`xpu-smi dump`."""
    head = (
        "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz),"
        " GPU Core Temperature (Celsius Degree), GPU Energy Consumed (J), GPU Memory Used (MiB)\n"
    )
    return head + "".join(
        f"06:14:46.000, {c.number:>4}, {c.load}, {c.power}, 1600, {c.temperature}, 95554.67, {c.used}\n" for c in cards
    )
