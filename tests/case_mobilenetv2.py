"""The case mobilenetv2/pytorch as its train.py sees itself, and its runs through the driver."""

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

import torch

ROOT = Path(__file__).resolve().parent.parent
CASE_DIR = ROOT / "suite/cases/mobilenetv2/pytorch"
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

TINY = {"width": 0.25, "last_channels": 64, "image_size": 32, "num_classes": 4, "train_batch_size": 8}
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
    merged = case["params"] | (case["preset"][preset]["params"] if preset != "full" else {})
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
        "schema": 1, "run": "mobilenetv2-test", "id": f"mobilenetv2-pytorch-cpu-host-mini-1x{ranks}",
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


def drive(folder: Path, values: dict[str, Any], ranks: int = 1, **changes: Any) -> list[list[dict[str, Any]]]:
    """The events of each rank of train.py, run to its end: alone, or by torchrun."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run_json = write_run(folder, values, ranks, **changes)
    environment |= {"TRAINMARK_RUN": str(run_json), "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    argv = [sys.executable]
    if ranks > 1:
        argv += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*argv, str(CASE_DIR / "train.py")], env=environment, timeout=600, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    streams = [(folder / f"events/rank{rank}.jsonl").read_text().splitlines() for rank in range(ranks)]
    return [[json.loads(line) for line in stream] for stream in streams]


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of every step of a rank."""
    return [loss for event in events if event["event"] == "steps" for loss in event["loss"]]


def qualities(events: list[dict[str, Any]]) -> list[float]:
    """The metric of every evaluation."""
    return [event["metrics"]["top1"] for event in events if event["event"] == "eval_result"]


def write_photographs(folder: Path, classes: int = 4, train: int = 20, held_out: int = 5) -> Path:
    """A data folder in ImageNet's layout: noise around a colour for each class, of different sizes."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", train), ("val", held_out)):
        for number in range(classes):
            where = folder / part / f"n{number:08d}"
            where.mkdir(parents=True)
            colour = torch.tensor([60 + 40 * number, 220 - 50 * number, 40 + 60 * (number % 2)])
            for index in range(count):
                shape = (40 + index, 50 + 3 * index, 3)
                noise = torch.randint(-30, 31, shape, generator=generator)
                pixels = (colour + noise).clamp(0, 255).to(torch.uint8).numpy()
                Image.fromarray(pixels).save(where / f"{part}_{index}.JPEG")
    return folder
