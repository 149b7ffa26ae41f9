"""Finished cells of the sabotage matrix as the tables of docs/sabotage.md: `python -m benchmarks.sabotage_table KEPT`.

KEPT is the folder that `python -m benchmarks.sabotage_matrix --kept` fills. One column a case, one row a sabotage; then
of each sabotage one sentence that told it. Exit status 1 where a cell is missing or did not end as named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from benchmarks.sabotage_cells import CASES, Cell, cells, with_twins
from benchmarks.sabotage_ended import Ended, Kept
from suite.drivers.command_line import Parser
from suite.drivers.sabotage import TABLE

WORDS = {"invalid_measurement": "invalid", "ranks_diverged": "diverged", "no_steady_state": "unsteady"}
"""Categories that are too long for a column; an outcome without a category stands for itself."""
Row = tuple[str, str, str]
"""A sabotage, or none for a healthy twin, and its mode and topology."""


def grid(found: Mapping[Cell, Ended | None], cases: Sequence[str]) -> tuple[str, list[str]]:
    """(the table, a note for each cell that did not end as named)."""
    notes, number = [], count(1)
    rows: dict[Row, dict[str, str]] = {}
    for cell, ended in found.items():
        text = "not run" if ended is None else WORDS.get(ended.category, ended.category) or ended.status
        if ended is not None and not ended.as_named:
            place = next(number)
            text = f"**{text}** ({place})"
            notes.append(f"({place}) {cell.case}, `{cell.name or 'healthy'}`: {ended.outcome}: {ended.reason}")
        rows.setdefault((cell.name, cell.mode, cell.topology), {})[cell.case] = text
    lines = [f"| broken | run | {' | '.join(cases)} |", "|---" * (len(cases) + 2) + "|"]
    for (name, mode, topology), row in sorted(rows.items(), key=lambda item: _place(item[0])):
        broken = f"`{name}`" if name else "healthy twin"
        texts = " | ".join(row.get(case, "not run") for case in cases)
        lines.append(f"| {broken} | {mode} {topology} | {texts} |")
    return "\n".join(lines), notes


def _place(row: Row) -> tuple[str, str, int]:
    """Runs of one shape stand together, the healthy twin first."""
    name, mode, topology = row
    return mode, topology, 1 + [one.name for one in TABLE].index(name) if name else 0


def told(found: Iterable[Ended | None]) -> str:
    """Of each sabotage, the sentence of the first case that ended as named."""
    first: dict[str, Ended] = {}
    for ended in found:
        if ended is not None and ended.as_named and ended.cell.name:
            first.setdefault(ended.cell.name, ended)
    rows = [first[sabotage.name] for sabotage in TABLE if sabotage.name in first]
    lines = [f"| `{one.cell.name}` | {one.cell.case} | {one.reason.replace('|', '/')} |" for one in rows]
    return "\n".join(["| broken | case | told |", "|---|---|---|", *lines])


def places(found: Iterable[Ended | None]) -> list[str]:
    """Where how many cells were run."""
    tally: dict[str, int] = {}
    for ended in found:
        if ended is not None:
            where = ended.where
            text = f"{where.get('cpu')}, Python {where.get('python')}, PyTorch {where.get('torch')}, {where.get('day')}"
            tally[text] = tally.get(text, 0) + 1
    return [f"{number} cells: {text}" for text, number in sorted(tally.items())]


def main(arguments: list[str] | None = None) -> int:
    """0: every cell is there and ended as named; 1: not every one."""
    parser = Parser(prog="python -m benchmarks.sabotage_table", description=__doc__)
    parser.add_argument("kept", type=Path, metavar="KEPT", help="the folder of `sabotage_matrix --kept`")
    parser.add_argument("--case", action="append", choices=CASES, help="default: every mini case")
    words = parser.parse_args(arguments)
    if not words.kept.is_dir():
        parser.error(f"{words.kept}: no such folder; name the one of `sabotage_matrix --kept`")
    cases, kept = words.case or list(CASES), Kept(words.kept)
    found = {cell: kept.find(cell) for case in cases for cell in with_twins(cells(case))}
    table, notes = grid(found, cases)
    print(table, *notes, told(found.values()), *places(found.values()), sep="\n\n")
    return int(not all(ended is not None and ended.as_named for ended in found.values()))


if __name__ == "__main__":
    sys.exit(main())
