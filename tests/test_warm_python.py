"""A fork of a warm Python is a program like any other: nothing of one reaches the next, and none outlives its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm_python import WarmPython

TELLS = """
import os, sys
print(sys.argv, os.getcwd(), os.environ.get("WORD"), sorted({"colorsys", "cmd"} & set(sys.modules)), __name__)
print("complaint", file=sys.stderr)
import neighbour
os.environ["WORD"] = "changed"
import cmd
"""


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    """One that has imported a module that nobody else wants."""
    server = WarmPython("colorsys")
    yield server
    server.close()


def script(folder: Path, text: str) -> str:
    """The path of a program with a module beside it."""
    (folder / "neighbour.py").write_text("")
    (folder / "program.py").write_text(text)
    return str(folder / "program.py")


def test_each_program_has_a_world_of_its_own(python: WarmPython, tmp_path: Path) -> None:
    argv = [script(tmp_path, TELLS), "--word", "a b"]
    for word in ("one", "two"):
        done = python.run(argv, env={"WORD": word}, cwd=tmp_path, timeout_s=30)
        assert done.stdout == f"{argv} {tmp_path} {word} ['colorsys'] __main__\n"
        assert (done.returncode, done.stderr) == (0, "complaint\n")


def test_a_module_is_found_where_it_is_run(python: WarmPython, tmp_path: Path) -> None:
    script(tmp_path, "import sys; print(sys.argv[1:]); sys.exit(5)")
    done = python.run(["-m", "program", "x"], env={}, cwd=tmp_path, timeout_s=30)
    assert (done.returncode, done.stdout) == (5, "['x']\n")
    (tmp_path / "elsewhere").mkdir()
    env = {"PYTHONPATH": str(tmp_path)}
    assert python.run(["-m", "program"], env=env, cwd=tmp_path / "elsewhere", timeout_s=30).returncode == 5


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise ValueError('no such thing')", 1, "ValueError: no such thing"),
        ("import sys; sys.exit('in a sentence')", 1, "in a sentence"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'left', file=__import__('sys').stderr)", 0, "left"),
    ],
)
def test_it_ends_as_a_start_would(python: WarmPython, tmp_path: Path, text: str, code: int, said: str) -> None:
    argv = [script(tmp_path, text)]
    done = python.run(argv, env={}, cwd=tmp_path, timeout_s=30)
    started = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == started.returncode == code
    assert said in done.stderr and said in started.stderr


def test_where_one_rank_fails_the_others_end(python: WarmPython, tmp_path: Path) -> None:
    argv = [script(tmp_path, "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)")]
    done = python.run_all(argv, [{"RANK": "0"}, {"RANK": "1"}], cwd=tmp_path, timeout_s=60)
    assert [one.returncode for one in done] == [-signal.SIGTERM, 3]


def test_a_program_that_stays_is_killed_with_its_server(tmp_path: Path) -> None:
    server = WarmPython()
    told = tmp_path / "pid"
    argv = [script(tmp_path, f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)")]
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(argv, env={}, cwd=tmp_path, timeout_s=5)
    pid, deadline = int(told.read_text()), time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert os.getpid() != pid
