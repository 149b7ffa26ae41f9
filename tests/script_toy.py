"""Scripts of other people, in plain Python, and what starts them: for tests that should not wait for a framework."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures.topology import node_argv
from suite.plan import Deadlines, Plan, Script
from suite.result import Result
from suite.vendor_spec import Launch
from suite.verdict import judge_folder
from tests.launch_toy import toy_plan, trainer
from tests.run_folders import read_lines

LAUNCHER = """
import os, signal, subprocess, sys, time
nnodes, nproc, node, program = *map(int, sys.argv[1:4]), sys.argv[4:]
started = int(os.environ.get("START", nproc))
ranks = [node * nproc + local for local in range(started)]
def place(rank):
    if nnodes * nproc == 1: return None
    return dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank % nproc), WORLD_SIZE=str(nnodes * started))
children = [subprocess.Popen([sys.executable, *program], env=place(rank), start_new_session=True) for rank in ranks]
def end(*_):
    for child in children: child.terminate()
    raise SystemExit(1)
signal.signal(signal.SIGTERM, end)
while any(child.poll() is None for child in children):
    if any(child.poll() for child in children): time.sleep(0.5); end()
    time.sleep(0.02)
sys.exit(max(child.returncode for child in children))
"""
"""A launcher with the habits of DeepSpeed's: it says rank and world, and not how many ranks a node has."""

TRAINS = """
import os, signal, sys, time
batch, steps = int(os.environ.get("BATCH", 16)), int(os.environ.get("STEPS", 6))
if os.environ["RANK"] == "0":
    print("***** Running training *****")
    print("  Num examples = 96")
    print("  Num Epochs = 1")
    print("  Instantaneous batch size per device = 8")
    print(f"  Total train batch size (w. parallel, distributed & accumulation) = {batch}")
    print("  Gradient Accumulation steps = 1")
    print("  Total optimization steps = 6")
    print("  Number of trainable parameters = 7,733,248", flush=True)
for step in range(1, steps + 1):
    time.sleep(0.08)
    if os.environ.get("DIES") == os.environ["RANK"] and step == 3: os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["RANK"] == "0":
        bar = f"{step * 100 // 6:3d}%|####      | {step}/6 [00:0{step // 4}<00:01,  9.0it/s]"
        sys.stderr.write(bar + ("\\n" if step == 6 else "\\r")); sys.stderr.flush()
        if step in (3, 6):
            print({"loss": 1.0 / step, "epoch": step / 6}, flush=True)
            print({"eval_accuracy": step / 7, "eval_runtime": 0.01, "epoch": step / 6}, flush=True)
print("words:", sys.argv[1:], flush=True)
if os.environ["RANK"] == "0" and steps == 6: print("Training completed. Do not forget to share your model", flush=True)
sys.exit(int(os.environ.get("STATUS", 0)))
"""
"""A script with the lines of transformers' Trainer."""


def script_plan(
    folder: Path, text: str = TRAINS, *, words: tuple[str, ...] = (), env: dict[str, str] | None = None, **over: Any
) -> Plan:
    """A plan of evidence `log` on two ranks whose script is `text`; `env` also reaches the toy launcher."""
    script = Script(
        launcher="torchrun", path="script.py", adapters=("hf_trainer",), arguments=words, environment=env or {}
    )
    plan = toy_plan(
        folder,
        **{"evidence": "log", "script": script, "environment": env or {}, "deadlines": Deadlines(total_s=60)} | over,
    )
    (plan.case_dir / "script.py").write_text(text, encoding="utf-8")
    checks = [check.model_copy(update={"required": check.name != "ranks_in_sync"}) for check in plan.checks]
    return plan.model_copy(update={"checks": tuple(check for check in checks if check.threshold is not None)})


def toy_command(plan: Plan, launch: Launch, node: int, address: str, port: int, run_dir: Path) -> tuple[str, ...]:
    """The toy launcher with the program of the real one."""
    argv = node_argv(plan, launch, node=node, master_addr=address, master_port=port, run_dir=run_dir)
    program = argv[next(at for at, word in enumerate(argv) if word.endswith("rank.py")) :]
    shape = (str(plan.topology.nnodes), str(plan.topology.nproc), str(node))
    return (launch.python or sys.executable, "-c", LAUNCHER, *shape, *program)


def judged(folder: Path, plan: Plan) -> Result:
    """Run it and judge it."""
    runs = trainer(folder, command=toy_command)(plan)
    return judge_folder(runs.folder)


def events(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """What a rank of the one run wrote, heartbeats apart."""
    (path,) = folder.glob(f"session/*/r1/events/rank{rank}.jsonl")
    return [line for line in read_lines(path) if line["event"] != "heartbeat"]


def rank_log(folder: Path, rank: int = 0) -> str:
    """A rank's log of the one run."""
    (path,) = folder.glob(f"session/*/r1/logs/rank{rank}.log")
    return path.read_text(encoding="utf-8")


@cache
def hf_python() -> str:
    """An interpreter with torch, transformers, accelerate and peft; skips where there is none."""
    named = os.environ.get("TRAINMARK_PYTHON_ACCELERATE", "") or sys.executable
    asked = "import importlib.util, sys; sys.exit(sum(importlib.util.find_spec(m) is None for m in sys.argv[1:]))"
    modules = ("torch", "transformers", "accelerate", "peft", "sacrebleu", "jiwer")
    if shutil.which(named) and subprocess.run([named, "-c", asked, *modules], timeout=60).returncode == 0:
        return named
    pytest.skip("no transformers, accelerate and peft here: pip install -e '.[local,hf]'")
