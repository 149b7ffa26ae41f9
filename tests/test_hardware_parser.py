"""The grammar that reads what vendors' tools print: worked vectors of invented tools, broken output, strange bytes."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.node.fields import SENTINELS, identity, join, pci_address, table
from fixtures.node.parse import ParseProblem, clean, rows
from fixtures.node.units import IDENTITIES, LISTS, QUANTITIES, TEXTS, UNITS, number
from suite.tool_spec import FieldName, Source, Unit

JSON = """Loading driver ... done
{"system": {"driver": "7.1"}, "gpus": {"card0": {"bus": "0000:3B:00.0", "power": {"now": "251.5 W", "cap": null},
"mem": [1024, 65536], "load": 0.5}, "card1": {"bus": "0000:5E:00.0", "power": {"now": "[N/A]"}, "mem": [0, 65536]}}}
1 warning
"""

CSV = """# index, uuid, power [mW], util, junction
0, ACC-aa, 250500, 83 %, 48
1, ACC-bb, N/A, [Not Supported], 51
Note: card 1 is in standby, power is estimated
"""

KEYVALUE = """Tool version : 3.2
==============
Card 0
    Bus Address          : 00000000:3B:00.0
    Power Readings
        Draw             : 250.5 W
        Limit            : 0.4 kW
    Memory
        Used             : 2048 MB
Card 1
    Bus Address          : 00000000:5E:00.0
    Power Readings
        Draw             : Unknown Error
    Memory
        Used             : 1 GB
"""

BOX = """\
+------------------+---------------+------------------+
| Tool 1.0                         Version: 2.2        |
+------------------+---------------+------------------+
| Card   Name      | Health        | Power(W)  Temp   |
| Bus              | Util(%)       | Memory(MB)       |
+==================+===============+==================+
| 0      A3        | OK            | 91.5             |
| 0000:C1:00.0     | 37            | 15136            |
+------------------+---------------+------------------+
| 1      A3        | OK            | -                |
| 0000:C2:00.0     | 0             | 0                |
+------------------+---------------+------------------+
"""

BLANKS = """\x1b[1mDevice  Temp    SCLK     Average Power\x1b[0m
======================================
0       41.0C   1.7Ghz   \x1b[32m39.0W\x1b[0m
1       42.0C   800Mhz   38.5W
======================================
"""

SCRAPE = (
    "card 0: [48C] 311W / 400W, 28736MiB of 40536MiB, busy 83%\ncard 1: [49C] 60W / 400W, 0MiB of 40536MiB, busy 0%\n"
)


def read(text: str, fields: dict[str, Any], **keys: Any) -> tuple[list[dict[str, object]], list[str]]:
    """Through the record that vendor.toml fills, as the node receives it."""
    source = Source.model_validate({"command": ["tool"], "fields": fields, **keys})
    return table(source.model_dump(mode="json"), text)


def test_json_with_a_banner_members_by_key_and_nested_columns() -> None:
    fields = {
        "index": {"column": "$key", "pattern": r"\d+"},
        "pci": "bus",
        "power_w": "power.now",
        "power_limit_w": "power.cap",
        "memory_bytes": {"column": "mem.0", "unit": "MiB"},
        "utilisation": {"column": "load", "unit": "fraction"},
    }
    found, problems = read(JSON, fields, format="json", rows="gpus.*")
    assert [row["index"] for row in found] == ["0", "1"]
    assert found[0] == {
        "index": "0", "pci": "0000:3B:00.0", "power_w": 251.5, "power_limit_w": None, "memory_bytes": 1024 * 2**20,
        "utilisation": 50.0,
    }  # fmt: skip
    assert (found[1]["power_w"], found[1]["utilisation"], found[1]["memory_bytes"]) == (None, None, 0)
    assert problems == ["power_limit_w: no row has a column 'power.cap' (have: $key, bus, power, mem, load)"]


def test_csv_with_a_commented_header_units_in_names_and_a_notice() -> None:
    fields = {
        "index": "index",
        "uuid": "uuid",
        "power_w": {"column": "power [mW]", "unit": "mW"},
        "utilisation": "util",
        "temperature_c": "junction",
    }
    found, problems = read(CSV, fields, format="csv")
    assert problems == []
    assert [list(row.values()) for row in found] == [
        ["0", "ACC-aa", 250.5, 83.0, 48.0],
        ["1", "ACC-bb", None, None, 51.0],
    ]


def test_csv_without_a_header_gets_one() -> None:
    text = "boot\n7;1.5\n8;2.5\n"
    fields = {"index": "i", "power_w": {"column": "p", "scale": 2}}
    found, _ = read(text, fields, format="csv", delimiter=";", header=["i", "p"], skip=1)
    assert found == [{"index": "7", "power_w": 3.0}, {"index": "8", "power_w": 5.0}]


def test_keyvalue_by_sections_and_indents() -> None:
    fields = {
        "index": "$row",
        "pci": "Bus Address",
        "power_w": "Power Readings.Draw",
        "power_limit_w": "Limit",
        "memory_bytes": "Memory.Used",
    }
    found, problems = read(KEYVALUE, fields, format="keyvalue", row_start=r"^Card (\d+)")
    assert problems == []
    assert [list(row.values()) for row in found] == [
        ["0", "00000000:3B:00.0", 250.5, 400.0, 2048e6],
        ["1", "00000000:5E:00.0", None, None, 1e9],
    ]


def test_keyvalue_without_sections_begins_a_row_at_its_first_key() -> None:
    found, _ = read("id=0\nW=5\n\nid=1\nW=6\n", {"index": "id", "power_w": "W"}, format="keyvalue", delimiter="=")
    assert found == [{"index": "0", "power_w": 5.0}, {"index": "1", "power_w": 6.0}]


def test_a_boxed_table_with_two_lines_a_device() -> None:
    header = ["card", "health", "power", "bus", "util", "memory"]
    fields = {
        "index": {"column": "card", "pattern": r"^\d+"},
        "pci": "bus",
        "power_w": "power",
        "utilisation": "util",
        "memory_bytes": {"column": "memory", "unit": "MB"},
    }
    keys = {"format": "table", "header": header, "lines": 2, "row_start": r"^\|\s*\d"}
    found, problems = read(BOX, fields, **keys)
    assert problems == []
    assert [list(row.values()) for row in found] == [
        ["0", "0000:C1:00.0", 91.5, 37.0, 15136e6],
        ["1", "0000:C2:00.0", None, 0.0, 0.0],
    ]


def test_a_table_of_blanks_in_colour_finds_its_header() -> None:
    fields = {"index": "Device", "temperature_c": "Temp", "sm_clock_mhz": "SCLK", "power_w": "Average Power"}
    found, problems = read(BLANKS, fields, format="table")
    assert problems == []
    assert [list(row.values()) for row in found] == [["0", 41.0, 1700.0, 39.0], ["1", 42.0, 800.0, 38.5]]


def test_a_scrape_by_pattern() -> None:
    pattern = r"^card (?P<n>\d+): \[(?P<t>\w+)\] (?P<w>\w+) / \w+, (?P<m>\w+) of .* busy (?P<u>\d+%)"
    fields = {"index": "n", "temperature_c": "t", "power_w": "w", "memory_bytes": "m", "utilisation": "u"}
    found, _ = read(SCRAPE, fields, format="regex", pattern=pattern)
    assert found[0] == {
        "index": "0", "temperature_c": 48.0, "power_w": 311.0, "memory_bytes": 28736 * 2**20, "utilisation": 83.0
    }  # fmt: skip
    assert len(found) == 2


def test_sentinels_of_the_tool_and_lists_of_processes() -> None:
    text = "i,w,p\n0,-1,4 12\n1,7,\n"
    found, problems = read(text, {"index": "i", "power_w": "w", "pids": "p"}, format="csv", sentinels=["-1"])
    assert found == [{"index": "0", "power_w": None, "pids": [4, 12]}, {"index": "1", "power_w": 7.0, "pids": []}]
    assert problems == []


def test_a_cell_that_cannot_be_read_is_null_and_told_once() -> None:
    found, problems = read(
        "i,w\n0,fast\n1,faster\n2,5 bananas\n3,1e999\n", {"index": "i", "power_w": "w"}, format="csv"
    )
    assert [row["power_w"] for row in found] == [None] * 4
    assert problems == ["power_w: 'fast' is not a number"]


@pytest.mark.parametrize(
    ("text", "field", "unit", "value"),
    [
        ("250.5 W", "power_w", "mW", 250.5),
        ("250500", "power_w", "mW", 250.5),
        ("40536MiB", "memory_bytes", "", 40536 * 2**20),
        ("1,024 kB", "memory_bytes", "", 1024e3),
        ("2 KIB", "memory_bytes", "", 2048.0),
        ("3 wh", "energy_j", "", 10800.0),
        ("0.83", "utilisation", "fraction", 83.0),
        ("48 °C", "temperature_c", "", 48.0),
        ("1.41 GHz", "sm_clock_mhz", "", 1410.0),
        ("-5", "temperature_c", "C", -5.0),
        (".5", "power_w", "", 0.5),
        ("5 mW", "power_w", "", 0.005),
    ],
)
def test_units(text: str, field: str, unit: str, value: float) -> None:
    found, problem = number(text, field, unit, 1.0)
    assert problem == ""
    assert found == pytest.approx(value)


@pytest.mark.parametrize("text", ["5 MW", "5 W / 7 W", "1,02", "five", "", "0x1f", "5 J"])
def test_what_is_no_power_is_not_guessed(text: str) -> None:
    found, problem = number(text, "power_w", "W", 1.0)
    assert (found, problem.startswith("power_w: ")) == (None, True)


@pytest.mark.parametrize(
    ("keys", "text", "words"),
    [
        ({"format": "json"}, "no braces", "format = 'json': the output is none"),
        ({"format": "json", "rows": "gpus"}, '{"cards": []}', "rows = 'gpus': nothing is called 'gpus' (have: cards)"),
        ({"format": "json", "rows": "*"}, "{}", "finds no row in the output, which begins with '{}'"),
        ({"format": "csv"}, "", "finds no row"),
        ({"format": "csv"}, "index,w\n", "finds no row"),
        ({"format": "table"}, "Error: no devices\n", "no line names the columns index, w; give `header`"),
        ({"format": "keyvalue", "row_start": "^Card"}, "no card: here\n", "finds no row"),
        ({"format": "regex", "pattern": "(?P<index>x)"}, "y", "finds no row in the output, which begins with 'y'"),
    ],
)
def test_output_that_is_something_else_is_said(keys: dict[str, str], text: str, words: str) -> None:
    with pytest.raises(ParseProblem, match=re.escape(words)):
        read(text, {"index": "index", "power_w": "w"}, **keys)


def test_two_tools_are_joined_on_what_both_know() -> None:
    usage = [{"index": "0", "uuid": "ACC-AA", "power_w": None}, {"index": "1", "uuid": "ACC-BB", "power_w": 2.0}]
    power = [{"index": "1", "power_w": 9.0}, {"index": "00", "power_w": 8.0}, {"index": "7", "power_w": 7.0}]
    owners = [{"uuid": "acc-aa", "pids": [4]}, {"uuid": "acc-aa", "pids": [5, 4]}]
    joined = join([usage, power, owners])
    assert [(row["power_w"], row.get("pids")) for row in joined] == [(8.0, [4, 5]), (2.0, None), (7.0, None)]


def test_the_surest_identity_decides() -> None:
    assert identity({"index": 0, "pci": "0000:3b:00.0"}, {"index": 3, "pci": "00000000:3B:00.0"})
    assert not identity({"index": 0, "uuid": "a"}, {"index": 0, "uuid": "b"})
    assert not identity({"uuid": "a"}, {"index": "0"})
    assert pci_address("3b:00") == pci_address("00000000:3B:00.0") == (0, 0x3B, 0, 0)


def test_the_record_and_the_node_know_the_same_words() -> None:
    assert set(get_args(Unit)) - {""} == {unit for table in UNITS.values() for unit in table}
    assert set(get_args(FieldName)) == {*QUANTITIES, *IDENTITIES, *TEXTS, *LISTS}
    assert all(word == word.lower() for word in SENTINELS)


def test_terminal_bytes_are_stripped() -> None:
    assert clean("\ufeff\x1b[31;1mred\x1b[0m\r\n\x1b]0;title\x07tab\there\x00\x08\n") == "red\ntab\there\n"


FORMATS = [
    {"format": "json"}, {"format": "json", "rows": "*.a"}, {"format": "csv"}, {"format": "keyvalue"},
    {"format": "keyvalue", "row_start": "^C"}, {"format": "table"},
    {"format": "table", "lines": 2, "header": ["a", "b"]},
    {"format": "regex", "pattern": "(?P<index>[0-9]+)"},
]  # fmt: skip


TREES = st.recursive(
    st.none() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(st.sampled_from(FORMATS), st.text(max_size=200) | TREES.map(json.dumps))
def test_no_output_breaks_the_parser(keys: dict[str, Any], text: str) -> None:
    source = {"fields": {"index": {"column": "index"}, "power_w": {"column": "a"}}, **keys}
    try:
        found = rows(source, text)
        read_rows, _ = table(source, text)
    except ParseProblem as problem:
        assert str(problem)
    else:
        assert len(found) == len(read_rows) > 0
        assert all(row["power_w"] is None or isinstance(row["power_w"], float) for row in read_rows)
