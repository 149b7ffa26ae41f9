"""The driver's loop against a hand-written one on the same model, data and optimizer, in turns. Aim: at most 1 %.

Both sides live in one process: every few steps the driver's data iterator, before it hands out the next batch, lets
the hand-written loop train a copy of the model on the same batches. So both meet the same host, seconds apart.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.sidebyside import Pair, told

ROOT = Path(__file__).resolve().parent.parent
AIM = 0.01
LONGEST_S = 85.0
"""Of one training; the pairs of blocks taken by then are the answer."""
TASKS = {"glm": ("the mini of glm/pytorch", 20, 12), "dense": ("a dense net of four layers", 10, 12)}
"""Name in loop_task.py -> what it is, the steps of a block, and the pairs of blocks."""


def run_spec(folder: Path, steps: int, block: int, window: int) -> dict[str, object]:
    """run.json of glm's mini in mode throughput. Batches come without a thread, whose work would fall into any turn."""
    from fixtures.run_folder import make_run_folder
    from fixtures.run_folder import run_spec as spec_of
    from suite.catalog import load_catalog
    from suite.plan import Request
    from suite.selection import plans

    catalog = load_catalog(ROOT / "suite")
    sets = ("threads=1", "num_workers=0", f"log_freq={window}")
    sets += (f"throughput_steps={steps}", f"throughput_warmup_steps={block}")
    wanted = Request(
        vendor="cpu", machine="host", models=("glm",), frameworks=("pytorch",), presets=("mini",), topologies=("1x1",),
        mode="throughput", sets=sets,
    )  # fmt: skip
    (plan,) = plans(catalog, wanted)
    make_run_folder(folder)
    return spec_of(
        plan, run="overhead", n=1, attempt=1, seed=1, folder=folder, data_dir=None, baselines=catalog.baselines_dir
    )


def train(name: str, steps: int, block: int, window: int) -> dict[str, list[float]]:
    """Run benchmarks/loop_task.py, LONGEST_S at most; the seconds of each block by side."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, answer = Path(scratch, "run"), Path(scratch, "answer.json")
        spec = run_spec(folder, steps, block, window)
        (folder / "run.json").write_text(json.dumps(spec))
        env = os.environ | {
            "TRAINMARK_RUN": str(folder / "run.json"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(spec["case_dir"])]),
            "OMP_NUM_THREADS": "1", "LOOP_TASK": name, "LOOP_BLOCK": str(block), "LOOP_ANSWER": str(answer),
        }  # fmt: skip
        argv = [sys.executable, str(ROOT / "benchmarks/loop_task.py")]
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LONGEST_S)
            ended = f"left with {done.returncode}:\n{done.stderr[-3000:]}" if done.returncode else ""
        except subprocess.TimeoutExpired:  # a crowded host: what was taken by then counts
            ended = ""
        if ended or not answer.exists():
            raise SystemExit(f"loop_task.py {name} {ended or f'took no pair of blocks in {LONGEST_S:g} s'}")
        taken: dict[str, list[float]] = json.loads(answer.read_text())
    return taken


def measure() -> list[str]:
    """Lines to print."""
    lines = []
    for name, (what, block, pairs) in TASKS.items():
        # The driver's blocks alone count as its steps: a warm-up, and one more whose end nobody asks for.
        taken = train(name, block * (pairs + 1), block, block)
        for clock in ("wall", "cpu"):
            pair = Pair(a=tuple(taken[f"driver_{clock}"]), b=tuple(taken[f"minimal_{clock}"]))
            label = f"{what}, a step, {clock.replace('cpu', 'CPU')}: driver"
            lines.append(pair.line(label, "hand-written", unit="ms", scale=1000 / block))
        share = statistics.median(pair.ratios) - 1
        lines.append(f"  more CPU for the driver's loop: {share:+.2%} (aim {AIM:.0%}); ratio {told(pair.ratios)}")
    return lines
