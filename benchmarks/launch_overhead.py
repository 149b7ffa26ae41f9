"""What the harness adds to bare torchrun of the same plan: `python benchmarks/launch_overhead.py [ROUNDS]`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from sidebyside import side_by_side, timed

ROOT = Path(__file__).resolve().parent.parent
SELECTION = ["-k", "glm and 1x1", "--vendor", "cpu", "--mode", "throughput", "--seed", "0"]


def suite(session: Path) -> float:
    """Wall seconds of pytest, reports included. Throughput without a threshold is `inconclusive`, exit 5."""
    code = "import sys, pytest; c = pytest.main(sys.argv[1:]); sys.exit(0 if c in (0, 5) else c)"
    argv = [sys.executable, "-c", code, str(ROOT / "suite"), "--rootdir", str(ROOT), "-q", *SELECTION]
    return timed([*argv, "--session", str(session)])


def bare(run: Path, scratch: Path) -> float:
    """Wall seconds of torchrun alone, reading the same run.json in a folder of its own."""
    spec = json.loads((run / "run.json").read_text())
    scratch.mkdir()
    for name in ("events", "exits", "logs", "checkpoints"):
        (scratch / name).mkdir()
    (scratch / "run.json").write_text(json.dumps(spec | {"run_dir": str(scratch)}))
    nproc = str(spec["topology"]["nproc"])
    threads = str(spec["params"].get("threads") or 1)
    env = os.environ | {"TRAINMARK_RUN": str(scratch / "run.json"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": threads}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", nproc]
    return timed([*torchrun, str(ROOT / "suite/drivers/rank.py"), str(Path(spec["case_dir"]) / "train.py")], env=env)


def main() -> None:
    """Print the ratio and the difference."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        suite(scratch / "first")  # warms the page cache, and leaves the run.json that both sides read
        run = next((scratch / "first").glob("*/r1"))
        numbers = iter(range(1000))
        pair = side_by_side(
            lambda: suite(scratch / f"suite{next(numbers)}"),
            lambda: bare(run, scratch / f"bare{next(numbers)}"),
            rounds,
        )
    print(pair.line("pytest suite", "bare torchrun"))


if __name__ == "__main__":
    main()
