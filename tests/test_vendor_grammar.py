"""What vendors' tables needed of the grammar: answers without a row, lists in nested values, PCI ids with a device."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from fixtures.node.fields import table
from fixtures.node.parse import ParseProblem, rows
from suite.tool_spec import Tool
from suite.vendor_spec import Detect

PROCESSES = {
    "format": "regex",
    "pattern": r"^\| (?P<card>\d+) +(?P<pid>\d+) ",
    "empty": "No running processes",
    "fields": {"index": {"column": "card"}, "pids": {"column": "pid"}},
}


@pytest.mark.parametrize("text", ["| No running processes in NPU 0 |\n", "noise\n  No running processes found\n"])
def test_a_tool_that_says_it_has_no_row_is_believed(text: str) -> None:
    assert rows(PROCESSES, text) == []
    assert table(PROCESSES, text) == ([], [])


@pytest.mark.parametrize("text", ["", "\n", "no running processes", "command not found", "| NPU  PID |\n"])
def test_a_tool_that_says_nothing_of_the_kind_is_not(text: str) -> None:
    with pytest.raises(ParseProblem, match="finds no row"):
        rows(PROCESSES, text)


def test_rows_count_more_than_words() -> None:
    text = "| 0   4711 python |\n| No running processes in NPU 1 |\n"
    (row,), problems = table(PROCESSES, text)
    assert (row["pids"], problems) == ([4711], [])


def test_an_expression_that_is_none_is_an_error_of_the_vendors_file() -> None:
    with pytest.raises(ValidationError, match="empty"):
        Tool.model_validate({"command": ["x"], "format": "regex", "pattern": "(?P<a>.)", "empty": "("})


def listed(cell: object, pattern: str = "") -> object:
    fields = {"index": {"column": "gpu"}, "pids": {"column": "list", **({"pattern": pattern} if pattern else {})}}
    found, problems = table({"format": "json", "rows": "", "fields": fields}, json.dumps([{"gpu": 0, "list": cell}]))
    assert problems == []
    return found[0]["pids"]


def test_a_list_inside_nested_values_is_read_by_its_pattern() -> None:
    cell = [
        {"process_info": {"name": "python 3", "pid": 4711, "mem": {"value": 17, "unit": "B"}}},
        {"process_info": {"name": "other", "pid": 12}},
    ]
    assert listed(cell, r'"pid": (\d+)') == [4711, 12]
    assert listed([{"process_info": "No running processes detected"}], r'"pid": (\d+)') == []
    assert listed("a:4711 b:12", r":(\d+)") == [4711, 12]


def test_a_list_without_a_pattern_is_every_whole_number() -> None:
    assert listed([4711, 12]) == [4711, 12]
    assert listed("4711, 12") == [4711, 12]


@pytest.mark.parametrize("pci", ["0x10de", "0x19e5:0xd802"])
def test_a_maker_or_a_maker_and_its_device_is_detected(pci: str) -> None:
    assert Detect.model_validate({"pci": [pci]}).pci == (pci,)


@pytest.mark.parametrize("pci", ["10de", "0x10DE", "0x19e5:d802", "0x19e5:", "0x19e5:0xd802:0x1", "0x19e5 0xd802", ""])
def test_another_form_of_it_is_refused(pci: str) -> None:
    with pytest.raises(ValidationError, match="pci"):
        Detect.model_validate({"pci": [pci]})
