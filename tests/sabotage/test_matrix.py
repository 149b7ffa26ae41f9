"""The whole matrix on real mini cases, by the command that users have. Told in part by test_seams.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sabotage_cells import CASES, cells, with_twins
from benchmarks.sabotage_ended import Kept
from tests.sabotage.toy import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

HOURS = 3


@pytest.mark.parametrize("case", CASES)
def test_every_cell_ends_as_named(case: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "benchmarks.sabotage_matrix", "--case", case, "--kept", str(tmp_path / "kept")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=HOURS * 3600, check=False)
    kept = Kept(tmp_path / "kept")
    ended = {cell.key: kept.find(cell) for cell in with_twins(cells(case))}
    otherwise = {key for key, one in ended.items() if one is None or not one.as_named}
    assert not otherwise and done.returncode == 0, done.stdout + done.stderr
