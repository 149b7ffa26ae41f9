"""The tools of vendors whose chips are not here, read from samples in their recorded form, whole and broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures.node.fields import join, of_device, table
from fixtures.node.parse import ParseProblem
from suite.catalog import load_catalog
from suite.tool_spec import Source, Tool
from tests.vendor_card import MIB, Card, Output, two
from tests.vendor_tables import npu
from tests.vendor_tools import TOOLS

CATALOG = load_catalog(Path(__file__).resolve().parent.parent / "suite")
READINGS = ("power_w", "utilisation", "temperature_c", "memory_bytes")

WITHOUT_PIDS = {"hygon", "intel-gaudi", "intel-xpu", "kunlunxin"}
BY_NUMBER = {"amd", "hygon", "intel-gaudi", "intel-xpu"}
"""Whose readings come without the bus: a number, or another tool with that number, tells of which device they are."""

BROKEN_CELLS = {"ascend": "NA"}
"""How a tool writes that it does not know; the others write N/A."""

TABLES = ("ascend", "cambricon", "hygon", "iluvatar", "kunlunxin", "metax", "mthreads")
"""Tools that print for people."""


def tool(vendor: str, name: str) -> Tool:
    found: Tool = getattr(CATALOG.vendor(vendor).spec, name)
    return found


@cache
def sources(vendor: str, name: str) -> tuple[Source, ...]:
    return tool(vendor, name).sources


def read(source: Source, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """One tool's output, as the node reads it."""
    return table(source.model_dump(mode="json"), text)


def monitored(
    vendor: str, cards: Sequence[Card], outputs: Sequence[Output] | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """All tools of a vendor's monitor, joined."""
    tables, problems = [], []
    for source, output in zip(sources(vendor, "monitor"), outputs or TOOLS[vendor].monitor, strict=True):
        rows, wrong = read(source, output(cards))
        tables.append(rows)
        problems += wrong
    return join(tables), problems


def row_of(card: Card, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the rows say of a card, found as the node finds it."""
    device = {"uuid": "", "pci": card.bus, "serial": "", "index": card.number}
    found = of_device(device, rows)
    assert found is not None, f"card {card.number} is not shown"
    return found


def shows(row: dict[str, Any], card: Card) -> None:
    """The row holds the card's readings in base units."""
    seen = {name: row.get(name) for name in READINGS}
    assert seen == {
        "power_w": float(card.power),
        "utilisation": float(card.load),
        "temperature_c": float(card.temperature),
        "memory_bytes": float(card.used) * MIB,
    }


def test_every_vendor_with_a_tool_is_tried() -> None:
    by_tool = {name for name, vendor in CATALOG.vendors.items() if vendor.spec.monitor.method == "command"}
    assert by_tool == set(TOOLS)
    for vendor, tools in TOOLS.items():
        assert len(tools.probe) == len(sources(vendor, "probe"))
        assert len(tools.monitor) == len(sources(vendor, "monitor"))


@pytest.mark.parametrize("vendor", TOOLS)
def test_two_devices_are_read(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name)
    rows, problems = monitored(vendor, (first, second))
    assert problems == []
    assert len(rows) == 2
    shows(row_of(first, rows), first)
    shows(row_of(second, rows), second)
    if vendor not in WITHOUT_PIDS:
        assert row_of(first, rows)["pids"] == [4711]
        assert not row_of(second, rows).get("pids")


@pytest.mark.parametrize("vendor", TOOLS)
def test_a_probe_tells_what_is_there(vendor: str) -> None:
    cards = two(TOOLS[vendor].name)
    tables = [
        read(source, output(cards))
        for source, output in zip(sources(vendor, "probe"), TOOLS[vendor].probe, strict=True)
    ]
    assert [problem for _, wrong in tables for problem in wrong] == []
    rows = join([rows for rows, _ in tables])
    assert len(rows) == 2
    for card in cards:
        row = next(row for row in rows if of_device({"pci": card.bus}, [row]))
        assert row["name"] == TOOLS[vendor].name
        assert str(row["index"]).isdigit()
        if "memory_total_bytes" in row:
            assert row["memory_total_bytes"] == float(card.total) * MIB
    machine = CATALOG.vendor(vendor).match_machine(TOOLS[vendor].name)
    assert machine is not None
    assert machine.name == TOOLS[vendor].machine


@pytest.mark.parametrize("vendor", TOOLS)
def test_devices_in_another_order_keep_their_readings(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name)
    rows, problems = monitored(vendor, (second, first))
    assert problems == []
    shows(row_of(first, rows), first)
    shows(row_of(second, rows), second)


@pytest.mark.parametrize("vendor", sorted(set(TOOLS) - BY_NUMBER))
def test_devices_whose_numbers_are_swapped_are_told_by_their_bus(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name)
    renumbered = (replace(first, number=1), replace(second, number=0))
    rows, _ = monitored(vendor, renumbered)
    shows(row_of(first, rows), first)
    shows(row_of(second, rows), second)


@pytest.mark.parametrize("vendor", TOOLS)
def test_what_a_tool_does_not_know_is_unknown_and_never_zero(vendor: str) -> None:
    word = BROKEN_CELLS.get(vendor, "N/A")
    first, second = two(TOOLS[vendor].name, power=word, load=word)
    rows, problems = monitored(vendor, (first, second))
    assert problems == []
    assert (row_of(first, rows)["power_w"], row_of(first, rows)["utilisation"]) == (None, None)
    assert row_of(first, rows)["memory_bytes"] == float(first.used) * MIB
    shows(row_of(second, rows), second)


@pytest.mark.parametrize("vendor", TABLES)
def test_a_number_of_another_locale_is_not_guessed(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name, power="91,5")
    rows, problems = monitored(vendor, (first, second))
    assert row_of(first, rows)["power_w"] is None
    assert [problem for problem in problems if problem.startswith("power_w: ") and "91,5" in problem]
    shows(row_of(second, rows), second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "Failed to initialise the management library: driver not loaded\n",
        "Segmentation fault (core dumped)\n",
        "bash: command not found\n",
        '{"error": "no permission"}\n',
        "{",
    ],
    ids=["empty", "blank", "driver", "crash", "absent", "refusal", "torn"],
)
@pytest.mark.parametrize("vendor", TOOLS)
def test_what_is_no_answer_is_said_and_gives_no_device(vendor: str, text: str) -> None:
    for name in ("probe", "monitor"):
        for source in sources(vendor, name):
            with pytest.raises(ParseProblem) as told:
                read(source, text)
            assert "format" in str(told.value) or "rows" in str(told.value) or "no row has any" in str(told.value)


def torn(vendor: str, text: str, from_place: int) -> list[str]:
    """The output cut at places of its second device: anywhere, but of csv only between cells, which have no end."""
    between_cells = sources(vendor, "monitor")[0].format in ("csv", "keyvalue")
    return [text[:place] for place in range(from_place, len(text) - 1) if not between_cells or text[place] in ",\n"]


@pytest.mark.parametrize("vendor", sorted(set(TOOLS) - {"amd"}))
def test_a_torn_output_never_gives_a_wrong_reading(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name)
    source, output = sources(vendor, "monitor")[0], TOOLS[vendor].monitor[0]
    text = output((first, second))
    last = [name for name in READINGS if name in source.fields]
    whole = row_of(second, read(source, text)[0])
    tried = torn(vendor, text, len(output((first,))) // 2)
    assert len(tried) > 5
    for piece in tried:
        try:
            rows, _ = read(source, piece)
        except ParseProblem:
            continue
        for row in rows:
            complete = whole if of_device({"index": second.number}, [row]) else row_of(first, read(source, text)[0])
            assert all(row[name] in (None, complete[name]) for name in last), piece[-80:]


def test_a_torn_json_is_none() -> None:
    source, output = sources("amd", "monitor")[1], TOOLS["amd"].monitor[1]
    text = output(two("AMD Instinct MI300X"))
    for place in range(len(text) // 2, len(text) - 1, 7):
        with pytest.raises(ParseProblem):
            read(source, text[:place])


@pytest.mark.parametrize("vendor", sorted(set(TOOLS) - WITHOUT_PIDS))
def test_an_idle_host_is_no_fault(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name, pids=())
    rows, problems = monitored(vendor, (first, second))
    assert problems == []
    assert not row_of(first, rows).get("pids")
    assert not row_of(second, rows).get("pids")


@pytest.mark.parametrize("vendor", sorted(set(TOOLS) - WITHOUT_PIDS))
def test_several_processes_of_several_devices(vendor: str) -> None:
    first, second = two(TOOLS[vendor].name, pids=(10, 12))
    rows, problems = monitored(vendor, (first, replace(second, pids=(11, 12))))
    assert problems == []
    assert row_of(first, rows)["pids"] == [10, 12]
    assert row_of(second, rows)["pids"] == [11, 12]


TWO_CHIPS = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.0.rc1                 Version: 25.0.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 162.3       34                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3134 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           35                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2881 / 65536         |
+===========================+===============+====================================================+
"""

OLD_CNMON = """\
| Card  VF  Name       Firmware | Inited        Driver | Util        Ecc-Error |
| Fan   Temp      Pwr:Usage/Cap |         Memory-Usage |         vMemory-Usage |
|===============================+======================+=======================|
| 0     /   MLU370-X4    v1.1.6 | On          v4.20.11 | 0%          N/A       |
|  0%   32C         30 W/ 150 W |     0 MiB/ 23308 MiB | 10240 MiB/1048576 MiB |
+-------------------------------+----------------------+-----------------------+
"""


@pytest.mark.parametrize(
    ("vendor", "text"),
    [("ascend", TWO_CHIPS), ("cambricon", OLD_CNMON), ("kunlunxin", '{"device_list": [{"device_id": 0}]}')],
    ids=["chips that are numbered otherwise", "a version without addresses", "another maker's tool of that name"],
)
def test_a_layout_that_would_be_misread_is_refused(vendor: str, text: str) -> None:
    with pytest.raises(ParseProblem, match="finds no row"):
        read(sources(vendor, "monitor")[0], text)


def test_a_process_table_of_chips_that_are_numbered_otherwise_tells_nothing_wrong() -> None:
    rows, _ = monitored("ascend", two("910B3"))
    text = npu(two("910B3")).replace("| 0       0                 | 4711 ", "| 0       1                 | 4711 ")
    assert read(sources("ascend", "monitor")[1], text)[0] == []
    assert row_of(two("910B3")[0], rows)["pids"] == [4711]


def test_earlier_columns_of_a_table_without_a_header_in_common() -> None:
    text = (
        "DCU  Temp   AvgPwr  Fan   Perf    PwrCap  VRAM%  DCU%\n0    31.0c  39.0W   0.0%  manual  280.0W   37%   5%\n"
    )
    (row,), problems = read(sources("hygon", "monitor")[0], text)
    assert problems == []
    assert (row["temperature_c"], row["power_w"], row["power_limit_w"], row["utilisation"]) == (31.0, 39.0, 280.0, 5.0)
