"""Wrong words on a command line: one sentence, exit status 4, whichever command of ours it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

COMMANDS = (
    "benchmarks.healthy_seeds",
    "benchmarks.sabotage_matrix",
    "benchmarks.sabotage_table",
    "benchmarks.scaling_gate",
    "fixtures.gradients",
    "fixtures.hardware",
    "fixtures.images",
    "fixtures.requality",
    "reports",
    "tools",
)


@pytest.mark.parametrize("module", COMMANDS)
def test_wrong_words_are_one_sentence_and_exit_4(module: str) -> None:
    argv = [sys.executable, "-m", module, "--no-such-word"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert f"python -m {module}" in line and "--help" in line


def test_a_wrong_word_for_a_cases_own_program_is_exit_4_too() -> None:
    argv = [sys.executable, "-m", "tools", "data", "prepare", "alma", "--no-such-word"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4 and "--no-such-word" in done.stderr
