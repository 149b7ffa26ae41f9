"""Collection of the shipped catalog, and of 1,000 invented cases with 10 configurations each, in time and memory.

Beside it: the same pytest on as many parametrised tests in as many files, of which nothing needs a plan.
Aims: 1.0 s for the shipped catalog, 10 s and 200 MB for 10,000 plans. CPU seconds, as the host has other work too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.overhead_checkout import MACHINE, make_checkout
from benchmarks.sidebyside import Pair, told

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = 10
SIZES = ((100, 3), (1000, 2))
"""Cases, and how often each side collects them."""
SHIPPED_ROUNDS = 5
COMMON = ("--collect-only", "-qq", "-p", "no:cacheprovider")

_MEASURED = """
import resource, sys, time, pytest
code = pytest.main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(code == 0, time.process_time(), used.ru_maxrss / 1024, file=sys.stderr)
"""
_CONFTEST = """
def pytest_generate_tests(metafunc):
    name = metafunc.definition.path.stem
    metafunc.parametrize("plan", range({configs}), ids=[f"{{name}}-pytorch-1x{{n}}" for n in range({configs})])
"""


class Collected(NamedTuple):
    """One collection."""

    cpu_s: float
    peak_mib: float


def collect(folder: Path, *words: str) -> Collected:
    """In a process of its own."""
    argv = [sys.executable, "-c", _MEASURED, "suite", "--rootdir", ".", "-c", "pytest.ini", *COMMON, *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600)
    last = (done.stderr.splitlines() or [""])[-1].split()
    if len(last) != 3 or last[0] != "True":
        raise SystemExit(f"pytest collected nothing in {folder}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Collected(float(last[1]), float(last[2]))


def make_bare(root: Path, files: int, tests: int) -> None:
    """As many tests as `make_checkout` gives, in the same folders, without a plan."""
    for number in range(files):
        folder = root / f"suite/cases/case{number:04}/pytorch"
        folder.mkdir(parents=True)
        text = 'def test_case(plan):\n    """An invented case reaches its target."""\n'
        (folder / f"test_case{number:04}.py").write_text(text)
    (root / "conftest.py").write_text(_CONFTEST.format(configs=tests))
    (root / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")


def measure() -> list[str]:
    """Lines to print."""
    with tempfile.TemporaryDirectory() as folder:
        lines = _shipped(Path(folder))
        for cases, rounds in SIZES:
            lines += _invented(Path(folder, str(cases)), cases, rounds)
    return lines


def _shipped(scratch: Path) -> list[str]:
    make_bare(scratch / "one", 1, 1)
    lines = []
    for vendor, machine in (("cpu", "host"), ("nvidia", "H200")):
        words = ("--vendor", vendor, "--machine", machine, "-k", "pytorch")
        taken = [(collect(ROOT, *words), collect(scratch / "one")) for _ in range(SHIPPED_ROUNDS)]
        lines += _lines(f"shipped catalog, {vendor}", "pytest on one test", taken)
    return lines


def _invented(scratch: Path, cases: int, rounds: int) -> list[str]:
    make_checkout(scratch / "ours", cases, CONFIGS)
    make_bare(scratch / "bare", cases, CONFIGS)
    words = ("--vendor", "maker", "--machine", MACHINE, "-k", "pytorch")
    for side, extra in (("ours", words), ("bare", ())):
        collect(scratch / side, *extra)  # compiles the test files, which happens once
    taken = [(collect(scratch / "ours", *words), collect(scratch / "bare")) for _ in range(rounds)]
    return _lines(f"{cases * CONFIGS} plans of {cases} cases", "pytest on as many tests", taken)


def _lines(ours: str, bare: str, taken: list[tuple[Collected, Collected]]) -> list[str]:
    pair = Pair(a=tuple(a.cpu_s for a, _ in taken), b=tuple(b.cpu_s for _, b in taken))
    peaks = [told([side[i].peak_mib for side in taken], unit="MiB") for i in (0, 1)]
    return [pair.line(ours, bare), f"  at most {peaks[0]} of memory, against {peaks[1]}"]
