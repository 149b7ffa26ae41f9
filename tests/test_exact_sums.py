"""mypy refuses a `sum` of floats, which each Python rounds its own way, and lets one of whole numbers be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "sum() of floats rounds as the Python that runs it; say exact_sum() of suite.rounding"

FLOATS = (
    "sum(each)",
    "sum(x for x in each)",
    "sum(each, 0.0)",
    "sum([x / 2 for x in each])",
    "sum(table.values())",
    "sum((a > 1) + (a == 1) / 2 for a in whole)",
)
WHOLE = ("sum(whole)", "sum(x > 0 for x in each)", "sum(map(len, words))", "sum(1 for _ in each)", "sum(lists, [])")

TOY = """\
from array import array

each: array[float] = array("d")
whole: list[int] = []
table: dict[str, float] = {}
words: list[str] = []
lists: list[list[float]] = []
"""


def test_mypy_tells_a_sum_of_floats(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY + "\n".join((*FLOATS, *WHOLE)) + "\n")
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nplugins = {ROOT / 'tests' / 'exact_sums.py'}\n")
    command = [sys.executable, "-m", "mypy", "--no-incremental", "toy.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    told = {line.partition(": error: ")[0] for line in done.stdout.splitlines() if SENTENCE in line}
    wrong = {line.partition(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line}
    first = len(TOY.splitlines()) + 1
    assert told == wrong == {f"toy.py:{first + place}" for place in range(len(FLOATS))}, done.stdout + done.stderr


def test_the_project_is_checked_so() -> None:
    assert '"tests/exact_sums.py"' in (ROOT / "pyproject.toml").read_text()
