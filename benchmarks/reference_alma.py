"""Training throughput of transformers' Llama, plain and under peft's adapters, for the ratios in the README of alma.

`python benchmarks/reference_alma.py [--workload llama_1_1b|lora_7b] [--steps N] [--batch B] [--sequence T]
[--device cuda] [--variants NAME …] [--tiny]`

Prints one JSON line a variant: eager and compiled, weights in float32 under bf16 autocast (as this project's case
trains `llama_1_1b`) and weights in bf16. Random (not constant) data that lies on the device, AdamW, gradients clipped
at 1, a synchronised window after warm-up. A variant that fails says why and the next one runs. Beside it, in one
session on one machine: `pytest suite --model alma --mode throughput --vendor nvidia --preset llama_1_1b` (or `full`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

VARIANTS = ("eager-bf16", "compiled-bf16", "eager-autocast", "compiled-autocast")
WINDOWS = 5


@dataclass(frozen=True)
class Workload:
    """What is trained."""

    batch: int
    sequence: int
    asked: int
    """The last tokens of a row, which have labels; the rest is the prompt."""
    adapters: bool
    sizes: dict[str, int]


LLAMA = {"vocab_size": 32000, "max_position_embeddings": 2048}
WORKLOADS = {
    "llama_1_1b": Workload(8, 2048, 2048, False, LLAMA | {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4,
    }),
    "lora_7b": Workload(12, 512, 256, True, LLAMA | {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32,
    }),
}  # fmt: skip
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def build(workload: Workload, sizes: dict[str, int], bf16: bool, device: str) -> Any:
    """The library's model with random weights, in training mode on the device; adapters of rank 16 on down_proj."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**sizes, rms_norm_eps=1e-5, tie_word_embeddings=False, use_cache=False)
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    if bf16:
        model = model.to(torch.bfloat16)
    if workload.adapters:
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=["down_proj"])
        model = get_peft_model(model, adapters)  # in float32, as peft keeps them
    return model.to(device).train()


class Training:
    """One variant of one workload."""

    def __init__(self, workload: Workload, variant: str, given: argparse.Namespace) -> None:
        how, _, weights = variant.partition("-")
        self.device, self.bf16 = given.device, weights == "bf16"
        sizes = workload.sizes | (TINY | {"num_key_value_heads": 2, "vocab_size": 512} if given.tiny else {})
        self.batch, self.sequence = given.batch or workload.batch, given.sequence or workload.sequence
        self.model = build(workload, sizes, self.bf16, given.device)
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        fused = {} if given.device == "cpu" else {"fused": True}
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, weight_decay=0.1, betas=(0.9, 0.95), **fused)
        self.network = torch.compile(self.model) if how == "compiled" else self.model
        self.tokens = torch.randint(3, sizes["vocab_size"], (self.batch, self.sequence), device=given.device)
        self.labels = self.tokens.clone()
        self.labels[:, : self.sequence - min(workload.asked, self.sequence)] = -100

    def step(self) -> torch.Tensor:
        """One optimizer step; the loss stays on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        # Adapters are float32 beside bf16 weights: autocast then is for both kinds of weights.
        with torch.autocast(self.device, torch.bfloat16):
            loss: torch.Tensor = self.network(input_ids=self.tokens, labels=self.labels, use_cache=False).loss
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        return loss.detach()

    def measure(self, steps: int) -> dict[str, Any]:
        """Rates in the median of five windows."""
        each = max(steps // WINDOWS, 1)
        start = time.perf_counter()
        for _ in range(max(3, each)):
            loss = self.step()
        first = float(loss)
        warm_up_s = time.perf_counter() - start
        seconds = []
        for _ in range(WINDOWS):
            synchronise(self.device)
            start = time.perf_counter()
            for _ in range(each):
                loss = self.step()
            synchronise(self.device)
            seconds.append((time.perf_counter() - start) / each)
        step_s = median(seconds)
        return {
            "samples_per_s": self.batch / step_s,
            "tokens_per_s": self.batch * self.sequence / step_s,
            "step_s": step_s,
            "windows_step_s": seconds,
            "warm_up_s": warm_up_s,
            "losses": [first, float(loss)],
            "trainable": sum(parameter.numel() for parameter in self.trained),
            "peak_memory_gib": peak_gib(self.device),
        }


def synchronise(device: str) -> None:
    """Wait for the device, where there is one to wait for."""
    if device != "cpu":
        torch.get_device_module(device).synchronize()


def peak_gib(device: str) -> float | None:
    """Peak memory since the variant began; None on the host."""
    if device == "cpu":
        return None
    return float(torch.get_device_module(device).max_memory_allocated() / (1 << 30))


def forget(device: str) -> None:
    """Give back what a variant used, so that the next one's memory is its own."""
    gc.collect()
    torch.compiler.reset()
    if device != "cpu":
        module = torch.get_device_module(device)
        module.empty_cache()
        module.reset_peak_memory_stats()


def versions() -> Iterator[tuple[str, str]]:
    """Of what takes part, where it is installed."""
    for name in ("torch", "transformers", "peft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def run(workload: str, variant: str, given: argparse.Namespace) -> dict[str, Any]:
    """The line of one variant; a problem is told in it, out of memory by that name."""
    told: dict[str, Any] = {"workload": workload, "variant": variant, "device": given.device, **dict(versions())}
    try:
        training = Training(WORKLOADS[workload], variant, given)
        told |= {"batch": training.batch, "sequence": training.sequence, "tiny": given.tiny}
        return told | training.measure(given.steps)
    except torch.OutOfMemoryError as problem:
        return told | {"problem": "out_of_memory", "detail": str(problem).splitlines()[0]}
    except Exception as problem:  # whatever a library raises: the other variants are still to be measured
        return told | {"problem": type(problem).__name__, "detail": str(problem)[:500]}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, default="llama_1_1b")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--sequence", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, to see that it runs")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for variant in given.variants:
        print(json.dumps(run(given.workload, variant, given)), flush=True)
        forget(given.device)


if __name__ == "__main__":
    main()
