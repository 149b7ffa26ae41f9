"""Training throughput of Hugging Face's ViViT on one device, for the ratio in the README of vivit/pytorch.

`python benchmarks/reference_vivit.py [--steps N] [--batch B] [--variants NAME …] [--device cuda] [--tiny]`

ViViT-B/16x2, 32 frames of 224 x 224, ten classes, bf16 autocast, AdamW fused where the device has it, gradients clipped
as the case does. Random (not constant) clips in bytes lie on the host, eight batches in turn; each is copied, scaled
and trained on, as in the case. Variants: the library's model eager and compiled, with sdpa attention, and the case's
own model under the same loop. Prints one JSON line a variant; a variant that fails is a line too. Run it beside
`pytest suite --model vivit --mode throughput`, in one session on one machine: only the ratio means something.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
CASE_DIR = ROOT / "suite/cases/vivit/pytorch"
RING = 8
WINDOWS = 5
TINY = {
    "num_frames": 4, "image_size": 32, "tubelet_size": 8, "hidden_size": 32, "feed_size": 64, "num_layers": 2,
    "num_heads": 2,
}  # fmt: skip

Scores = Callable[[torch.Tensor], torch.Tensor]


def shape_of(tiny: bool) -> dict[str, Any]:
    """The case's own parameters."""
    params = tomllib.loads((CASE_DIR / "case.toml").read_text(encoding="utf-8"))["params"]
    return params | (TINY if tiny else {})


def hugging_face(params: dict[str, Any], device: str) -> tuple[torch.nn.Module, Scores]:
    """(VivitForVideoClassification, bytes -> scores)."""
    from transformers import VivitConfig, VivitForVideoClassification

    size = params["tubelet_size"]
    config = VivitConfig(
        image_size=params["image_size"],
        num_frames=params["num_frames"],
        tubelet_size=[params["tubelet_frames"], size, size],
        hidden_size=params["hidden_size"],
        num_hidden_layers=params["num_layers"],
        num_attention_heads=params["num_heads"],
        intermediate_size=params["feed_size"],
        num_labels=params["num_classes"],
        attn_implementation="sdpa",
    )
    model = VivitForVideoClassification(config).to(device).train()

    def scores(net: Any, clips: torch.Tensor) -> torch.Tensor:
        pixels = clips.permute(0, 1, 4, 2, 3).float() / 127.5 - 1
        return net(pixel_values=pixels).logits

    return model, scores


def ours(params: dict[str, Any], device: str) -> tuple[torch.nn.Module, Scores]:
    """(the case's model, bytes -> scores)."""
    sys.path[:0] = [str(CASE_DIR), str(ROOT)]
    from model import Shape, ViViT

    return ViViT(Shape.of(params)).to(device).train(), lambda net, clips: net(clips)


VARIANTS = {
    "eager": (hugging_face, False),
    "compiled": (hugging_face, True),
    "ours_eager": (ours, False),
    "ours_compiled": (ours, True),
}


def measure(name: str, batch: int, steps: int, device: str, params: dict[str, Any]) -> dict[str, Any]:
    """Clips a second in the median of five windows."""
    build, compiled = VARIANTS[name]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model, scores = build(params, device)
    net = torch.compile(model) if compiled else model
    fused = {"fused": True} if device != "cpu" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, **fused)
    size = params["image_size"]
    ring = [
        (
            torch.randint(0, 256, (batch, params["num_frames"], size, size, 3), dtype=torch.uint8),
            torch.randint(0, params["num_classes"], (batch,)),
        )
        for _ in range(RING)
    ]
    if device != "cpu":
        ring = [(clips.pin_memory(), labels.pin_memory()) for clips, labels in ring]
    done = 0

    def step() -> None:
        nonlocal done
        clips, labels = (tensor.to(device, non_blocking=True) for tensor in ring[done % RING])
        done += 1
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(scores(net, clips).float(), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    module = torch.get_device_module(device)
    synchronise = getattr(module, "synchronize", lambda: None)
    each = max(1, steps // WINDOWS)
    for _ in range(max(3, each // 2)):
        step()
    if hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats()
    rates = []
    for _ in range(WINDOWS):
        synchronise()
        start = time.perf_counter()
        for _ in range(each):
            step()
        synchronise()
        rates.append(batch * each / (time.perf_counter() - start))
    peak = module.max_memory_allocated() if hasattr(module, "max_memory_allocated") else None
    return {
        "clips_per_s": round(median(rates), 3),
        "windows": [round(rate, 3) for rate in rates],
        "peak_gib": None if peak is None else round(peak / 2**30, 2),
    }


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Parse, measure each variant, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a toy's sizes, to try the script")
    given = parser.parse_args()
    params = shape_of(given.tiny)
    facts = {
        "model": "vivit",
        "batch": given.batch,
        "precision": "bf16",
        "tiny": given.tiny,
        **{package: version(package) for package in ("torch", "transformers")},
    }
    for name in given.variants:
        try:
            found = measure(name, given.batch, given.steps, given.device, params)
        except torch.OutOfMemoryError as problem:
            found = {"error": "out of memory", "detail": str(problem)[:300]}
        except Exception as problem:  # one variant's failure is that variant's line
            found = {"error": type(problem).__name__, "detail": str(problem)[:300]}
        print(json.dumps(facts | {"variant": name} | found), flush=True)
        gc.collect()
        torch.compiler.reset()
        if given.device != "cpu":
            torch.get_device_module(given.device).empty_cache()


if __name__ == "__main__":
    main()
