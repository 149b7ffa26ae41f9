"""The modules of the case gpt3/pytorch as its train.py sees them, and runs of it on this CPU by one or two ranks."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import warm_python
from tests.launch_toy import until
from tests.meeting import meeting_ports

CASE_DIR = Path(__file__).resolve().parent.parent / "suite/cases/gpt3/pytorch"
DATA_DIR = CASE_DIR / "data"
ROOT = CASE_DIR.parents[3]


def load_case() -> SimpleNamespace:
    """Every module of the case's folder by name."""
    names = sorted(path.stem for path in CASE_DIR.glob("*.py") if not path.stem.startswith("test_"))
    shadowed = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(CASE_DIR))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(CASE_DIR))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


CASE = load_case()

SMALL = {
    "vocab_size": 300,
    "vocab_multiple": 64,
    "hidden_size": 32,
    "feed_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "sequence_length": 32,
    "train_batch_size": 4,
    "eval_batch_size": 4,
    "global_batch_size": 0,
    "gradient_accumulation_steps": 1,
    "init_std": 0.1,
    "precision": "fp32",
    "compile": False,
    "threads": 1,
    "num_workers": 0,
    "throughput_steps": 5,
    "throughput_warmup_steps": 1,
    "warmup_steps": 2,
    "lr": 1e-2,
}
"""The preset full with the sizes of a toy."""


def params(preset: str = "full", **changes: Any) -> dict[str, Any]:
    """The parameters of a preset, with changes to keys that exist."""
    case = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    merged = case["params"] | (case["preset"][preset]["params"] if preset != "full" else {})
    assert set(changes) <= set(merged), set(changes) - set(merged)
    return merged | changes


def task(values: dict[str, Any], *, data_dir: Path | None = None, seed: int = 1, rank: int = 0, world: int = 1) -> Any:
    """The case's task with its standard slots."""
    run = SimpleNamespace(
        params=values, seed=seed, data_dir=data_dir and str(data_dir), case_dir=str(CASE_DIR), mode="converge"
    )
    kind = CASE.train.PretrainGpt
    return kind(run, None, kind.default_slots(), rank, world)


def run_json(folder: Path, values: dict[str, Any], ranks: int, **changes: Any) -> Path:
    """run.json for `ranks` ranks on this CPU."""
    (folder / "events").mkdir(parents=True)
    spec = {
        "schema": 1, "run": "gpt3-test", "id": f"gpt3-pytorch-cpu-host-1x{ranks}", "n": 1, "attempt": 1,
        "mode": "converge", "preset": "mini", "params": values, "seed": 1, "topology": {"nnodes": 1, "nproc": ranks},
        "quality": {"metric": "bits_per_byte", "better": "lower", "target": 0.1}, "limit_s": 600,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": ranks, "precision": values["precision"], "device_match": []}, "machine": "host",
        "data_dir": None, "case_dir": str(CASE_DIR), "extern_dir": None, "runtime_dir": None, "slots": [],
        "run_dir": str(folder), "checkpoint": {"every_s": 0, "final": False}, "resume": None, "heartbeat_s": 5,
        "capabilities": {}, "sabotage": None,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(spec | changes), encoding="utf-8")
    return path


def drive(folder: Path, values: dict[str, Any], *, ranks: int = 1, **changes: Any) -> list[list[dict[str, Any]]]:
    """The events of every rank of train.py, run to its end."""
    for done in warm_python.train(CASE_DIR / "train.py", run_json(folder, values, ranks, **changes), ranks):
        assert done.returncode == 0, done.stdout + done.stderr
    return [events_of(folder, rank) for rank in range(ranks)]


def of(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of one name."""
    return [event for event in events if event["event"] == name]


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of every step."""
    return [loss for event in of(events, "steps") for loss in event["loss"]]


def bits(events: list[dict[str, Any]]) -> list[float]:
    """The bits a byte of every evaluation."""
    return [event["metrics"]["bits_per_byte"] for event in of(events, "eval_result")]


SCENARIOS = """
import importlib.util, json, os, sys

spec = importlib.util.spec_from_file_location("train", sys.argv[1])
sys.path.insert(0, os.path.dirname(sys.argv[1]))
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)
for path, port in json.loads(sys.argv[2]):
    os.environ.update(TRAINMARK_RUN=path, MASTER_PORT=str(port))
    train.run(train.PretrainGpt)
"""
"""What each rank of `drive_all` runs: one training after the other, since most of a small one's time is its imports."""


def drive_all(scenarios: dict[Path, tuple[dict[str, Any], dict[str, Any]]], ranks: int) -> None:
    """Run several trainings, {folder: (params, changes to run.json)}, one after the other on the same `ranks`."""
    paths = [run_json(folder, values, ranks, **changes) for folder, (values, changes) in scenarios.items()]
    with meeting_ports(len(paths)) as ports:
        _drive([[str(path), port] for path, port in zip(paths, ports, strict=True)], ranks)


def _drive(jobs: list[list[Any]], ranks: int) -> None:
    """Those of (run.json, port); a rank that fails ends the others, who would wait for it."""
    argv = [sys.executable, "-c", SCENARIOS, str(CASE_DIR / "train.py"), json.dumps(jobs)]
    place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    common = os.environ | place | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(ranks)]
        started = []
        for rank, log in enumerate(logs):
            env = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = stack.enter_context(subprocess.Popen(argv, env=env, stdout=log, stderr=log))
            stack.callback(process.kill)
            started.append(process)
        until(lambda: _are_over(started), 600)
        codes = [process.poll() for process in started]
        for log in logs:
            log.seek(0)
        assert codes == [0] * ranks, "\n".join(log.read() for log in logs)


def _are_over(started: list[subprocess.Popen[bytes]]) -> bool:
    codes = [process.poll() for process in started]
    return None not in codes or any(codes)


def events_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The events that a rank wrote."""
    return [json.loads(line) for line in (folder / f"events/rank{rank}.jsonl").read_text().splitlines()]
