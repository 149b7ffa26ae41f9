"""Judging runs and reporting on them, at 1,000 and at 10,000: seconds of CPU for each run, and memory.

The runs are invented (100 steps of one rank, measured and judged like any other); writing them is no part of it.
They lie in memory where the host has such a file system: results are written durably, and a disk would set the pace.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.reduce_events import make_plan, write_run

ROOT = Path(__file__).resolve().parent.parent
SIZES = (1000, 10_000)
STEPS = 100

_SESSION = """
from pathlib import Path
from reports.reporter import Reporter
from suite.plan import Plan
from suite.verdict import judge_folder
session = Path(sys.argv[1])
reporter = Reporter(session, "main")
plans = [Plan.read(path) for path in sorted(session.glob("*/plan.json"))]
told = [plan.model_dump(mode="json") for plan in plans]
reporter.announce({"kind": "session", "id": session.name, "started": "2026-01-01T00:00:00Z"})
reporter.announce({"kind": "selected", "plans": told})
reporter.refresh(live=True)
for plan in plans:
    reporter.announce({"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")})
    result = judge_folder(session / plan.id)
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result.model_dump(mode="json")})
reporter.refresh()
reporter.close()
code = 0
"""
"""What the controller of a session does beside training."""
_REPORT = """
from reports.__main__ import main
code = main(sys.argv[1:])
if code == 5: code = 0  # nothing passed, as of runs without a target
"""
_AROUND = """
import resource, sys, time
sys.path.insert(0, {root!r})
{code}
used = resource.getrusage(resource.RUSAGE_SELF)
print("USED" if code == 0 else code, time.process_time(), used.ru_maxrss / 1024, file=sys.stderr)
"""


class Used(NamedTuple):
    """Of one command."""

    cpu_s: float
    peak_mib: float


def use(code: str, *arguments: str | Path, cwd: Path) -> Used:
    """Run `code` in a process of its own."""
    argv = [sys.executable, "-c", _AROUND.format(root=str(ROOT), code=code), *map(str, arguments)]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600)
    last = (done.stderr.splitlines() or [""])[-1].split()
    if len(last) != 3 or last[0] != "USED":
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Used(float(last[1]), float(last[2]))


def make_session(folder: Path, runs: int) -> None:
    """So many plans, each with one run that nobody has judged yet."""
    plan = make_plan(1)
    for number in range(runs):
        model = f"case{number:05}"
        one = plan.model_copy(update={"id": f"{model}-none-cpu-host-1x1", "model": model, "plan_digest": model})
        write_run(folder / one.id / "r1", one, STEPS)
        one.write(folder / one.id / "plan.json")
        attempt = {"event": "attempt", "n": 1, "attempt": 1, "folder": "r1", "outcome": {"status": "passed"}}
        (folder / one.id / "harness.jsonl").write_text(json.dumps({"t": 1.0, "t_wall": 1e9, **attempt}) + "\n")


def measure() -> list[str]:
    """Lines to print."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        taken = [_take(Path(scratch, str(runs)), runs) for runs in SIZES]
    lines = []
    for what in taken[0]:
        few, many = (one[what] for one in taken)
        each = [1000 * used.cpu_s / runs for used, runs in zip((few, many), SIZES)]
        lines.append(
            f"{what}: {SIZES[0]:,} runs {few.cpu_s:.2f} s ({each[0]:.2f} ms a run, {few.peak_mib:.0f} MiB)   "
            f"{SIZES[1]:,} runs {many.cpu_s:.2f} s ({each[1]:.2f} ms a run, {many.peak_mib:.0f} MiB)   "
            f"ratio of a run's cost {each[1] / each[0]:.2f}"
        )
    return lines


def _take(results: Path, runs: int) -> dict[str, Used]:
    session = results / "20260101T000000Z-0001"
    make_session(session, runs)
    return {
        "judged and reported in a session": use(_SESSION, session, cwd=results),
        "reports rebuild --no-plots": use(_REPORT, "rebuild", "--no-plots", session, cwd=results),
        "reports show": use(_REPORT, "show", session, cwd=results),
        "reports compare": use(_REPORT, "compare", session, session, cwd=results),
        "reports history": use(_REPORT, "history", "--results", results, cwd=results),
    }
