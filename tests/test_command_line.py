"""Wrong words on a command line: one sentence, exit status 4, whichever command of ours it is."""

from __future__ import annotations

import os
import re
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


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["fixtures.gradients"], "model, --vendor"),
        (["fixtures.images"], "COMMAND"),
        (["fixtures.requality"], "PATH"),
        (["reports"], "COMMAND"),
        (["reports", "gate"], "path"),
        (["tools"], "COMMAND"),
        (["tools", "data", "prepare"], "MODEL"),
    ],
)
def test_missing_words_are_named_with_the_way_to_learn_them(words: list[str], missing: str) -> None:
    argv = [sys.executable, "-m", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert f"required: {missing}" in line
    assert f"python -m {' '.join(words)} --help" in line


PREPARES = sorted(ROOT.glob("suite/cases/*/*/prepare.py"))
AT_ONCE = ("mobilenetv2", "vivit")
"""Of these models; the others import a framework before they look at their words, which takes seconds. That all use
the one parser is told below for every file."""
LATER = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id="-".join(path.parts[-3:-1]), marks=LATER * (path.parts[-3] not in AT_ONCE))
        for path in PREPARES
    ],
)
def test_a_wrong_word_for_a_cases_own_program_is_exit_4_too(path: Path, tmp_path: Path) -> None:
    """Called by itself, from anywhere, with nothing of ours on Python's path."""
    if path.parent.name == "accelerate":
        pytest.importorskip("transformers")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [sys.executable, str(path), "--no-such-word"]
    done = subprocess.run(argv, cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert "--no-such-word" in line or "required" in line
    assert line.endswith("see `prepare.py --help`")


def test_through_tools_it_names_the_command_that_was_given() -> None:
    argv = [sys.executable, "-m", "tools", "data", "prepare", "mobilenetv2", "--framework", "tensorflow2"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4
    remedy = "python -m tools data prepare mobilenetv2 --framework tensorflow2 -- --help"
    assert f"required: --source; see `{remedy}`" in done.stderr
    argv = [sys.executable, *remedy.split()[1:]]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "--source" in done.stdout


def test_no_command_line_of_a_person_is_argparses_own() -> None:
    """It would leave with 2, an interrupt's status. These two are called by the harness alone."""
    own = [
        path.relative_to(ROOT).as_posix()
        for room in ("suite", "fixtures", "reports", "tools")
        for path in sorted((ROOT / room).rglob("*.py"))
        if re.search(r"= argparse\.ArgumentParser\(", path.read_text(encoding="utf-8"))
    ]
    assert own == ["suite/drivers/ranks.py", "fixtures/faults/torchrun.py"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["whisper/pytorch", *(pytest.param(case, marks=LATER) for case in ("alma/accelerate", "whisper/accelerate"))],
)
def test_data_that_is_there_is_not_made_anew_unasked(case: str, tmp_path: Path) -> None:
    """It travels with the case, and another machine's training gives other bytes."""
    pytest.importorskip("transformers")
    argv = [sys.executable, str(ROOT / "suite/cases" / case / "prepare.py")]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert "is there; say --overwrite to make it anew" in line
