"""What each entry point imports, and how long that takes beside a bare interpreter (CPU seconds), in turns.

None may import torch but the drivers; those are told without torch's own share: B is then `import torch`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.sidebyside import Cost, cost, turns

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 8
HEAVY = ("torch", "tensorflow", "paddle", "numpy", "matplotlib", "docker", "jinja2", "sqlite3")
"""Looked for among what is imported."""
ENTRIES = {
    "pytest plugins": ("import fixtures.plugin, reports.plugin", "import pytest"),
    "a planned session": ("import fixtures.plugin, reports.plugin, fixtures.handover", "import pytest, pydantic"),
    "python -m reports": ("import reports.__main__", "pass"),
    "python -m tools": ("import tools.__main__", "pass"),
    "agent of a node": ("import fixtures.node.agent", "pass"),
    "rank.py": ("import suite.drivers.rank", "pass"),
    "PyTorch driver": ("import suite.drivers.pytorch.entry", "import torch"),
}
"""Entry point -> its import, and the import that it is held against."""


def _argv(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]


def _run(code: str) -> Cost:
    return cost(_argv(code))


def imported(code: str) -> list[str]:
    """Those of HEAVY that `code` imports."""
    asked = f"{code}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    return subprocess.run(_argv(asked), capture_output=True, text=True, check=True, timeout=120).stdout.split()


def measure() -> list[str]:
    """Lines to print."""
    lines = []
    for name, (ours, bare) in ENTRIES.items():
        _, cpu = turns(lambda ours=ours: _run(ours), lambda bare=bare: _run(bare), ROUNDS)
        lines.append(f"{cpu.line(name, bare)}   imports {', '.join(imported(ours)) or 'nothing heavy'}")
    return lines
