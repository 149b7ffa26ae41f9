"""The modules of the case alma/pytorch as its train.py sees them, without leaving names like `model` behind."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CASE_DIR = Path(__file__).resolve().parent.parent / "suite/cases/alma/pytorch"
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

TINY: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "feed_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "max_positions": 48,
    "sequence_length": 48,
    "max_answer": 16,
    "max_source": 32,
    "pad_multiple": 0,
    "lora_rank": 4,
    "init_std": 0.2,
    "init_checkpoint": "",
    "train_batch_size": 4,
    "eval_batch_size": 3,
    "gradient_accumulation_steps": 1,
    "precision": "fp32",
}
"""Any preset with the sizes of a toy."""


def params(preset: str = "full", **changes: Any) -> dict[str, Any]:
    """The parameters of a preset, with changes to keys that exist."""
    case = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    merged = case["params"] | (case["preset"][preset]["params"] if preset != "full" else {})
    assert set(changes) <= set(merged), set(changes) - set(merged)
    return merged | changes


def task(
    values: dict[str, Any],
    *,
    data_dir: Path | None = None,
    seed: int = 1,
    rank: int = 0,
    world: int = 1,
    mode: str = "throughput",
) -> Any:
    """The case's task with its standard slots."""
    run = SimpleNamespace(
        params=values, seed=seed, data_dir=data_dir and str(data_dir), case_dir=str(CASE_DIR), mode=mode,
        preset="mini", resume=None,
    )  # fmt: skip
    kind = CASE.train.Translate
    return kind(run, None, kind.default_slots(), rank, world)


def run_json(folder: Path, values: dict[str, Any], **changes: Any) -> Path:
    """run.json for one rank on this CPU."""
    (folder / "events").mkdir(parents=True)
    spec = {
        "schema": 1, "run": "alma-test", "id": "alma-pytorch-cpu-host-1x1", "n": 1, "attempt": 1,
        "mode": "converge", "preset": "mini", "params": values, "seed": 1, "topology": {"nnodes": 1, "nproc": 1},
        "quality": {"metric": "chrf", "better": "higher", "target": 101.0}, "limit_s": 900,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": 1, "precision": "fp32", "device_match": []}, "machine": "host", "data_dir": None,
        "case_dir": str(CASE_DIR), "extern_dir": None, "runtime_dir": None, "slots": [], "run_dir": str(folder),
        "checkpoint": {"every_s": 0, "final": False}, "resume": None, "heartbeat_s": 5, "capabilities": {},
        "sabotage": None,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(spec | changes), encoding="utf-8")
    return path


def drive(folder: Path, values: dict[str, Any], *, fails: bool = False, **changes: Any) -> list[dict[str, Any]]:
    """The events of train.py, run as a rank is."""
    environment = {**os.environ, "TRAINMARK_RUN": str(run_json(folder, values, **changes)), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(CASE_DIR / "train.py")], env=environment, timeout=900, capture_output=True, text=True
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return [json.loads(line) for line in (folder / "events/rank0.jsonl").read_text().splitlines()]


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of every step."""
    return [loss for event in events if event["event"] == "steps" for loss in event["loss"]]


def scores(events: list[dict[str, Any]]) -> list[float]:
    """chrF of every evaluation."""
    return [event["metrics"]["chrf"] for event in events if event["event"] == "eval_result"]
