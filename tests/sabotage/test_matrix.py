"""The whole matrix on real mini cases, by the command that users have. Told in part by test_seams.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sabotage.toy import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

HOURS = 3


@pytest.mark.parametrize("case", ["glm", "mobilenetv2", "bert"])
def test_every_cell_ends_as_named(case: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "benchmarks.sabotage_matrix", "--case", case, "--results", str(tmp_path / "results")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=HOURS * 3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
