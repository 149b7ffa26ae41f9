"""The modules of the case faster_rcnn/pytorch as its train.py sees them; they leave no name like `data` behind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.one_case import load_modules

CASE_DIR = Path(__file__).resolve().parent.parent / "suite/cases/faster_rcnn/pytorch"
DIGITS = CASE_DIR / "data/digits.npz"


CASE = load_modules(CASE_DIR)

FEW = {"train_scenes": 64, "eval_scenes": 7, "eval_batch_size": 3, "threads": 1}
"""The preset mini with little data."""


def case() -> dict[str, Any]:
    """case.toml."""
    return tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))


def params(preset: str = "full", **changes: Any) -> dict[str, Any]:
    """The parameters of a preset, with changes to keys that exist."""
    merged = case()["params"] | (case()["preset"][preset]["params"] if preset != "full" else {})
    assert set(changes) <= set(merged), set(changes) - set(merged)
    return merged | changes


def task(values: dict[str, Any], *, data_dir: Path | None = None, seed: int = 1, rank: int = 0, world: int = 1) -> Any:
    """The case's task with its standard slots."""
    run = SimpleNamespace(
        params=values, seed=seed, data_dir=data_dir and str(data_dir), case_dir=str(CASE_DIR), mode="converge"
    )
    kind = CASE.train.Detect
    device = SimpleNamespace(fall_back=lambda what, why: None)
    return kind(run, device, kind.default_slots(), rank, world)


def losses(model: Any, batch: dict[str, Any]) -> Any:
    """[B, 4] of a batch."""
    return model(batch["images"], batch["sizes"], batch["boxes"], batch["labels"], batch["keys"])


def write_coco(folder: Path, *, split: str, sizes: list[tuple[int, int]], boxes: list[list[list[float]]]) -> Path:
    """annotations/instances_<split>.json for images of (width, height) with boxes (left, top, width, height, label,
    iscrowd); ids are 10, 11 …. The pixels are the caller's to write."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    images = [
        {"id": 10 + number, "file_name": f"{number:012d}.jpg", "width": width, "height": height}
        for number, (width, height) in enumerate(sizes)
    ]
    notes = [
        {"image_id": 10 + number, "bbox": row[:4], "category_id": int(row[4]), "iscrowd": int(row[5]), "area": 1}
        for number, rows in enumerate(boxes)
        for row in rows
    ]
    path = folder / "annotations" / f"instances_{split}.json"
    path.write_text(json.dumps({"images": images, "annotations": notes, "categories": []}), encoding="utf-8")
    return path
