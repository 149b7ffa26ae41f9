"""FlagPerf's table of cases, as TOML: `"glm:pytorch:A100:1:8:1" = "data dir"`."""

from __future__ import annotations

import re
from pathlib import Path

from suite.errors import UsageProblem
from suite.plan import CaseRow
from suite.toml_file import read_toml
from suite.topology import Topology

_FORM = "<model>:<framework>:<machine>:<nodes>:<devices>:<repeat>"


def read_cases(path: Path) -> tuple[CaseRow, ...]:
    """The rows in the order of the file. Raises UsageProblem naming file and row."""
    table = read_toml(path, str(path))
    # FlagPerf's own file calls the table CASES; both forms are read.
    entries = table["CASES"] if set(table) == {"CASES"} else table
    if not isinstance(entries, dict) or not entries:
        raise UsageProblem(f'{path}: no rows; write "{_FORM}" = "data folder", one a line')
    rows: dict[str, CaseRow] = {}
    for key, value in entries.items():
        row = _row(key, value, str(path))
        name = f"{row.model}:{row.framework}:{row.machine}:{row.topology}"
        if name in rows:
            raise UsageProblem(f'{path}: "{key}": a second row of the same case; keep one, with the repeat you mean')
        rows[name] = row
    return tuple(rows.values())


def _row(key: str, value: object, label: str) -> CaseRow:
    match = re.fullmatch(r"([^:]+):([^:]+):([^:]+):([1-9][0-9]*):([1-9][0-9]*):([1-9][0-9]*)", key)
    if not match:
        raise UsageProblem(f'{label}: "{key}": not {_FORM}, as in "glm:pytorch:A100:1:8:1"')
    if not isinstance(value, str):
        raise UsageProblem(f'{label}: "{key}" = {value!r}: the data folder is text; "" where the case needs none')
    model, framework, machine, nnodes, nproc, repeat = match.groups()
    return CaseRow(
        model=model,
        framework=framework,
        machine=machine,
        topology=Topology(nnodes=int(nnodes), nproc=int(nproc)),
        repeat=int(repeat),
        data_dir=value,
    )
