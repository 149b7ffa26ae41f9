"""A session outlasts whoever reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spine import clone

LATER = """
import os, sys
from fixtures.output import LastingOutput

copy = os.dup(1)
out = LastingOutput(sys.stdout)
for line in range(20000):
    out.write("nobody reads this\\n")
out.flush()
os.write(copy, b"nor what a copy of the descriptor writes")
os.write(2, f"{os.readlink('/proc/self/fd/1')} {os.readlink(f'/proc/self/fd/{copy}')} {out.encoding}".encode())
"""
"""More than a buffer of Python's holds, and the end of the process, which writes the rest."""


def ended(stdout: int) -> subprocess.CompletedProcess[bytes]:
    """LATER, with that standard output."""
    return subprocess.run(
        [sys.executable, "-c", LATER],
        cwd=Path(__file__).parent.parent,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
    )


def test_what_cannot_be_written_is_no_matter_and_leaves_nothing_to_complain_of() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = ended(writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"/dev/null /dev/null utf-8")


def test_a_full_disk_is_no_matter_either() -> None:
    with Path("/dev/full").open("wb") as full:
        done = ended(full.fileno())
    assert (done.returncode, done.stderr) == (0, b"/dev/null /dev/null utf-8")


def test_what_can_be_written_is_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        done = ended(file.fileno())
    assert done.returncode == 0
    assert (tmp_path / "out").read_text() == "nobody reads this\n" * 20000 + "nor what a copy of the descriptor writes"


@pytest.mark.parametrize("seen", ["one line", "the first steps"])
def test_a_session_whose_reader_leaves_comes_to_its_verdict(tmp_path: Path, seen: str) -> None:
    """`pytest suite … | head -1`, or a tee that was killed: the run is not given up, nor is its verdict another."""
    place = clone(tmp_path)
    process = place.start("-k", "mobilenetv2 and pytorch and 1x1", "--session", "s")
    assert process.stdout is not None
    for line in process.stdout:
        if seen == "one line" or " r1: step " in line or " r1: evaluated " in line:
            break
    process.stdout.close()
    assert process.wait(300) == 0
    record = json.loads((place.root / "s" / "session.json").read_text())
    assert record["session"]["exit_status"] == 0
    assert [result["outcome"]["status"] for result in record["results"]] == ["passed"]
    assert "<failure" not in (place.root / "s" / "junit.xml").read_text()
