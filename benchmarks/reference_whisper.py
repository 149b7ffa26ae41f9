"""Training throughput of transformers' Whisper with peft's LoRA, for the ratio in the README of the case whisper.

`python benchmarks/reference_whisper.py [--steps N] [--batch B] [--labels T] [--device cuda] [--variants eager]`

whisper-large-v2 with random weights in bfloat16 under bf16 autocast, rank 16 on q_proj and v_proj, dropout 0.05, fused
AdamW on the adapters; random (not constant) spectrograms and labels that lie on the device; five synchronised windows
after warm-up. Prints one JSON line a variant, also for one that failed. Needs transformers and peft; run it beside
`pytest suite --model whisper --mode throughput`, in one session on one machine: only the ratio means something.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

LARGE = {"d_model": 1280, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "encoder_layers": 32, "decoder_layers": 32,
         "encoder_attention_heads": 20, "decoder_attention_heads": 20, "vocab_size": 51865}  # fmt: skip
TINY = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 51865}  # fmt: skip
WINDOWS = 5


def build(given: argparse.Namespace) -> torch.nn.Module:
    """The published model with adapters; all else is frozen and kept in bfloat16."""
    from peft import LoraConfig, get_peft_model
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(**(TINY if given.tiny else LARGE), use_cache=False)
    with torch.device(given.device):
        model = WhisperForConditionalGeneration(config).to(torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05, bias="none")
    return get_peft_model(model, lora).train()


def make_step(given: argparse.Namespace, compiled: bool) -> Callable[[], None]:
    """One optimizer step on random data."""
    model = build(given)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0, fused=True)
    # peft's outer forward takes positions that differ from the wrapped model's; the model within has the adapters.
    inner = model.base_model.model
    net = torch.compile(inner) if compiled else inner
    features = torch.rand(given.batch, 80, 3000, device=given.device) * 2 - 1
    labels = torch.randint(0, 50000, (given.batch, given.labels), device=given.device)

    def step() -> None:
        with torch.autocast(given.device, torch.bfloat16):
            loss = net(input_features=features, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(given: argparse.Namespace, compiled: bool) -> dict[str, Any]:
    """Samples a second in the median of five windows, and the peak of the device's memory."""
    module = torch.get_device_module(given.device)
    synchronise = getattr(module, "synchronize", lambda: None)
    if hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats()
    step, count = make_step(given, compiled), max(1, given.steps // WINDOWS)
    started = time.perf_counter()
    for _ in range(1 if given.tiny else 10):
        step()
    synchronise()
    warm = time.perf_counter() - started
    rates = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(count):
            step()
        synchronise()
        rates.append(given.batch * count / (time.perf_counter() - start))
    peak = module.max_memory_allocated() / 2**30 if hasattr(module, "max_memory_allocated") else None
    return {"samples_per_s": median(rates), "windows": rates, "warm_up_s": warm, "memory_peak_gib": peak}


def attempt(given: argparse.Namespace, variant: str) -> dict[str, Any]:
    """The measurement of a variant, or why there is none: one must not cost the other."""
    try:
        return measure(given, variant == "compiled")
    except torch.OutOfMemoryError as problem:
        return {"error": "out_of_memory", "detail": str(problem)[:300]}
    except Exception as problem:  # whatever these libraries raise
        return {"error": type(problem).__name__, "detail": str(problem)[:300]}


def versions() -> dict[str, str]:
    """Those of the libraries that take part and are here."""
    found = {}
    for package in ("torch", "transformers", "peft"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="measured steps of a variant")
    parser.add_argument("--labels", type=int, default=128, help="as synthetic_labels of the case")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--variants", nargs="+", choices=("eager", "compiled"), default=["eager", "compiled"])
    parser.add_argument("--tiny", action="store_true", help="a toy model, to try this script")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for variant in given.variants:
        result = {"model": "whisper-tiny-toy" if given.tiny else "whisper-large-v2", "variant": variant}
        result |= {"batch": given.batch, "labels": given.labels, **versions(), **attempt(given, variant)}
        print(json.dumps(result), flush=True)
        gc.collect()
        if hasattr(torch.get_device_module(given.device), "empty_cache"):
            torch.get_device_module(given.device).empty_cache()


if __name__ == "__main__":
    main()
