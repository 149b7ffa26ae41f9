"""How many loader processes does a training step need? The share of waiting for data, side by side.

`python benchmarks/data_loader_scaling.py [--workers 0 1 2 4] [--steps N] [--step-ms N] [--batch B] [--data-dir DIR]`

Batches of ViViT's full size, 32 frames of 224 x 224, are built by the driver's own processes as a run builds them: a
video is read, a moment and a box are drawn, the frames are resized. A step takes --step-ms of sleeping in place of a
device's computing, so that the host's cores are the loader's alone, as beside an accelerator. 0 workers: in line.

Without --data-dir the videos are arrays made for the purpose (320 x 240, 60 frames, as UCF101's are), read without a
decoder; with it, those of its UCF101_subset. Prints one line a number of workers, and the ratio to the first one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CASE_DIR = ROOT / "suite/cases/vivit/pytorch"
sys.path[:0] = [str(CASE_DIR), str(ROOT)]

from data import Place  # noqa: E402
from train import Classify  # noqa: E402

from suite.drivers.command_line import Parser  # noqa: E402
from suite.drivers.pytorch import batches  # noqa: E402
from suite.drivers.pytorch.device import Device  # noqa: E402
from suite.drivers.pytorch.prefetch import Prefetcher  # noqa: E402
from suite.drivers.pytorch.workers import Workers  # noqa: E402

SHAPE = {
    "attention": "joint", "num_frames": 32, "image_size": 224, "tubelet_frames": 2, "tubelet_size": 16,
    "pixel_mean": [0.5] * 3, "pixel_std": [0.5] * 3, "hidden_size": 768, "feed_size": 3072, "num_layers": 12,
    "temporal_layers": 0, "num_heads": 12, "num_classes": 10, "dropout": 0.0, "attention_dropout": 0.0,
    "init_std": 0.02, "activation_checkpointing": False,
}  # fmt: skip
WARM = 3
"""Steps before the measured ones: the processes start in them."""


def write_videos(folder: Path, count: int = 20) -> None:
    """Arrays in UCF101's layout and size: ten classes, two videos each, for training and evaluation."""
    random = np.random.default_rng(0)
    for number in range(count):
        frames = random.integers(0, 256, (60, 240, 320, 3), dtype=np.uint8)
        for part in ("train", "val") if number < 10 else ("train",):
            where = folder / "UCF101_subset" / part / f"Action{number % 10}"
            where.mkdir(parents=True, exist_ok=True)
            np.savez(where / f"v_{number}.npz", frames=frames, fps=25.0)


def open_task(folder: Path, batch: int, workers: int) -> Any:
    """The case's task with its data open."""
    params = SHAPE | {
        "dataset": "videos", "train_data": "UCF101_subset/train", "eval_data": "UCF101_subset/val",
        "train_clips": 0, "sampling_fps": 30.0, "train_batch_size": batch, "num_workers": workers, "prefetch_factor": 2,
    }  # fmt: skip
    run = SimpleNamespace(params=params, seed=1, data_dir=str(folder), case_dir=str(CASE_DIR))
    task = Classify(run, None, Classify.default_slots(), *Place(0, 1))
    task.prepare_data()
    return task


def measure(folder: Path, batch: int, workers: int, steps: int, step_s: float) -> dict[str, float]:
    """Seconds waited and seconds in all of `steps` steps, after the first few."""
    task = open_task(folder, batch, workers)
    device = Device.open({"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host"}, 0)
    source = Workers(task, 1, 0) if workers else batches.epochs(task)
    stream = Prefetcher(source, device, 2 if workers else 0)
    waits = []
    try:
        for number in range(WARM + steps):
            if number == WARM:
                began = time.perf_counter()
            asked = time.perf_counter()
            next(stream)
            waits.append(time.perf_counter() - asked)
            time.sleep(step_s)
        took = time.perf_counter() - began
    finally:
        if workers:
            source.close()
        stream.close()
    waited = sum(waits[WARM:])
    return {
        "workers": workers,
        "clips_per_s": batch * steps / took,
        "data_wait_fraction": waited / took,
        "seconds": took,
    }


def main() -> None:
    """Parse, measure, print."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=500.0, help="what a step computes for (default: 500)")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--data-dir", type=Path, help="holds UCF101_subset")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.data_dir or Path(scratch)
        if given.data_dir is None:
            write_videos(folder)
        first = None
        for workers in given.workers:
            found = measure(folder, given.batch, workers, given.steps, given.step_ms / 1000)
            first = first or found["seconds"]
            ratio = found["seconds"] / first
            facts = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "ratio_to_first": round(ratio, 3)}
            print(json.dumps({name: round(value, 3) for name, value in found.items()} | facts), flush=True)


if __name__ == "__main__":
    main()
