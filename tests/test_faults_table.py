"""docs/faults.md is what the tests have recorded, of every fault that they know."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.faults.fault import Row
from tests.faults.registry import FAULTS, GROUPS
from tests.faults.table import page, record, recorded

ROOT = Path(__file__).resolve().parent.parent


def test_names_are_unique() -> None:
    assert sum(len(group) for group in GROUPS.values()) == len(FAULTS) >= 40


def test_every_fault_is_recorded_as_it_should_be() -> None:
    rows = recorded()
    assert list(rows) == list(FAULTS)
    wrong = {}
    for name, told in rows.items():
        row = Row(**{**told, "injected": tuple(told["injected"]), "left": tuple(told["left"])})
        if differences := FAULTS[name].differences(row):
            wrong[name] = differences
    assert wrong == {}


def test_the_page_is_the_recorded_table() -> None:
    assert (ROOT / "docs" / "faults.md").read_text(encoding="utf-8") == page(recorded())


def test_the_page_names_every_fault() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert [name for name in FAULTS if f"`{name}`" not in text] == []


def test_recording_replaces_a_row_and_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    names = list(FAULTS)[:3]
    for name in reversed(names):
        record(row(name), path)
    record(row(names[1], "again"), path)
    assert [line["name"] for line in json.loads(path.read_text())] == names
    assert recorded(path)[names[1]]["reason"] == "again"


def test_a_cell_stays_a_cell() -> None:
    name = next(iter(FAULTS))
    line = page({name: asdict(row(name, "a | b\n`c`"))})
    assert "`a \\| b 'c'`" in line


def row(name: str, reason: str = "") -> Row:
    """A row of no particular fault."""
    return Row(
        name=name,
        command="pytest suite",
        injected=(),
        outcome="passed",
        reason=reason,
        rank=None,
        attempts=1,
        exit=0,
        verdict_s=1.0,
        left=(),
        gone_s=0.0,
    )
