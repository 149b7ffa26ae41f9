"""The case vivit/pytorch as its train.py sees itself, and its runs through the driver."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
CASE_DIR = ROOT / "suite/cases/vivit/pytorch"
DATA_DIR = CASE_DIR / "data"


def load_case() -> SimpleNamespace:
    """Every module of the case's folder by name, without leaving names like `model` or `data` behind."""
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

HOST = SimpleNamespace(pin=lambda batch: batch, to=lambda batch: batch, torch_device=torch.device("cpu"))
"""What a task asks of the driver's device."""

TINY = {
    "num_frames": 4,
    "image_size": 32,
    "tubelet_size": 8,
    "hidden_size": 32,
    "feed_size": 48,
    "num_layers": 2,
    "num_heads": 2,
    "num_classes": 3,
    "train_clips": 0,
    "init_checkpoint": "",
    "precision": "fp32",
}
"""The preset full with the sizes of a toy."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """On a busy host a second thread costs more than it gives, and one alone computes the same each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def params(preset: str = "full", **changes: Any) -> dict[str, Any]:
    """The parameters of a preset, with changes to keys that exist."""
    case = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))
    merged = case["params"] | case["preset"][preset].get("params", {})
    assert set(changes) <= set(merged), set(changes) - set(merged)
    return merged | changes


def task(values: dict[str, Any], *, data_dir: Path | None = None, seed: int = 1, rank: int = 0, world: int = 1) -> Any:
    """The case's task with its standard slots."""
    run = SimpleNamespace(params=values, seed=seed, data_dir=data_dir and str(data_dir), case_dir=str(CASE_DIR))
    kind = CASE.train.Classify
    return kind(run, HOST, kind.default_slots(), rank, world)


def write_run(folder: Path, values: dict[str, Any], ranks: int = 1, **changes: Any) -> Path:
    """run.json of a run on this CPU that no quality ends."""
    (folder / "events").mkdir(parents=True)
    spec = {
        "schema": 1, "run": "vivit-test", "id": f"vivit-pytorch-cpu-host-mini-1x{ranks}",
        "n": 1, "attempt": 1, "mode": "converge", "preset": "mini", "params": values, "seed": 1,
        "topology": {"nnodes": 1, "nproc": ranks}, "quality": {"metric": "top1", "better": "higher", "target": 2.0},
        "limit_s": None,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": ranks, "precision": values["precision"], "device_match": []},
        "machine": "host", "data_dir": None, "case_dir": str(CASE_DIR), "extern_dir": None, "runtime_dir": None,
        "slots": [], "run_dir": str(folder), "checkpoint": {"every_s": 0, "final": False}, "resume": None,
        "heartbeat_s": 5, "capabilities": {}, "sabotage": None,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(spec | changes), encoding="utf-8")
    return path


def drive(folder: Path, values: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """The events of train.py, run to its end as a single rank."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run_json = write_run(folder, values, **changes)
    environment |= {"TRAINMARK_RUN": str(run_json), "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CASE_DIR / "train.py")], env=environment, timeout=600, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (folder / "events/rank0.jsonl").read_text().splitlines()]


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of every step."""
    return [loss for event in events if event["event"] == "steps" for loss in event["loss"]]


def qualities(events: list[dict[str, Any]]) -> list[float]:
    """The metric of every evaluation."""
    return [event["metrics"]["top1"] for event in events if event["event"] == "eval_result"]


def write_arrays(folder: Path, classes: int = 3, train: int = 5, held_out: int = 2, frames: int = 20) -> Path:
    """A data folder in UCF101's layout, videos as arrays: noise around a brightness for each class."""
    random = np.random.default_rng(0)
    for part, count in (("train", train), ("val", held_out)):
        for number in range(classes):
            where = folder / "UCF101_subset" / part / f"Action{number}"
            where.mkdir(parents=True)
            for index in range(count):
                shape = (frames + index, 40, 50 + index, 3)
                noise = random.integers(0, 40, shape)
                np.savez(where / f"v_{number}_{index}.npz", frames=(noise + 70 * number).astype(np.uint8), fps=25.0)
    return folder
