"""Whole `pytest suite -k X` against bare torchrun of the same plan. Aim: at most 1.5 s + 1 % of wall time.

CPU seconds, of all processes of a side, are told beside: what else the host does moves them less.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.sidebyside import Cost, cost, turns

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 4
STEPS = 60
SELECTION = ("-k", "glm and pytorch and 1x1", "--vendor", "cpu", "--mode", "throughput", "--seed", "0")
AIM_S, AIM_SHARE = 1.5, 0.01


def suite(session: Path) -> Cost:
    """Of pytest, reports included. Throughput without a threshold is `inconclusive`, exit 5."""
    code = "import sys, pytest; c = pytest.main(sys.argv[1:]); sys.exit(0 if c in (0, 5) else c)"
    argv = [sys.executable, "-c", code, str(ROOT / "suite"), "--rootdir", str(ROOT), "-q", *SELECTION]
    return cost([*argv, "--set", f"throughput_steps={STEPS}", "--session", str(session), "-p", "no:cacheprovider"])


def bare(run: Path, scratch: Path) -> Cost:
    """Of torchrun alone, reading the same run.json in a folder of its own."""
    spec = json.loads((run / "run.json").read_text())
    scratch.mkdir()
    for name in ("events", "exits", "logs", "checkpoints"):
        (scratch / name).mkdir()
    (scratch / "run.json").write_text(json.dumps(spec | {"run_dir": str(scratch)}))
    nproc = str(spec["topology"]["nproc"])
    threads = str(spec["params"].get("threads") or 1)
    env = os.environ | {"TRAINMARK_RUN": str(scratch / "run.json"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": threads}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", nproc]
    return cost([*torchrun, str(ROOT / "suite/drivers/rank.py"), str(Path(spec["case_dir"]) / "train.py")], env=env)


def measure() -> list[str]:
    """Lines to print."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        suite(scratch / "first")  # warms the page cache, and leaves the run.json that both sides read
        run = next((scratch / "first").glob("*/r1"))
        wall, cpu = turns(
            lambda: suite(scratch / f"suite{next(numbers)}"),
            lambda: bare(run, scratch / f"bare{next(numbers)}"),
            ROUNDS,
        )
    allowed = [AIM_S + AIM_SHARE * seconds for seconds in wall.b]
    kept = sum(difference <= most for difference, most in zip(wall.differences, allowed))
    return [
        wall.line("wall: pytest suite", "bare torchrun"),
        cpu.line("CPU:  pytest suite", "bare torchrun"),
        f"wall difference at most {AIM_S:g} s + {AIM_SHARE:.0%}: in {kept} of {len(allowed)} pairs",
    ]
