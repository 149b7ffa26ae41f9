"""Training throughput of transformers' models with the sizes of the case gpt3, for the ratios in its README.

`python benchmarks/reference_gpt3.py [--preset full|1_3b|126m] [--batch B] [--steps N] [--optimizer adamw|sgd] [--tiny]`

`full` is StableLM with NeMo's 7b_improved sizes (rotary halves, gated feed-forward, layer norms), the others GPT-2.
Random tokens that lie on the device, sequence 2048, float32 weights under bf16 autocast, as the case trains;
synchronised windows after a warm-up, eager and compiled. One JSON line a variant; what fails is a line with `error`,
and the next goes on. Run it beside `pytest suite --model gpt3 --mode throughput --vendor nvidia` on one machine: only
the ratio means something.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import time
from statistics import median
from typing import Any

import torch

WINDOWS = 5
PRESETS: dict[str, dict[str, int]] = {
    "full": {"hidden": 4096, "feed": 10880, "layers": 32, "heads": 32},
    "1_3b": {"hidden": 2048, "feed": 8192, "layers": 24, "heads": 16},
    "126m": {"hidden": 768, "feed": 3072, "layers": 12, "heads": 12},
}
TINY = {"hidden": 64, "feed": 128, "layers": 2, "heads": 4}
VOCABULARY = 50304


def stable_lm(sizes: dict[str, int], vocabulary: int, length: int) -> torch.nn.Module:
    """The improved model's parts."""
    from transformers import StableLmConfig, StableLmForCausalLM

    config = StableLmConfig(
        vocab_size=vocabulary, hidden_size=sizes["hidden"], intermediate_size=sizes["feed"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"], num_key_value_heads=sizes["heads"],
        partial_rotary_factor=0.5, use_qkv_bias=False, tie_word_embeddings=False, max_position_embeddings=length,
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return StableLmForCausalLM(config)


def gpt2(sizes: dict[str, int], vocabulary: int, length: int) -> torch.nn.Module:
    """The classic model's parts."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary, n_positions=length, n_embd=sizes["hidden"], n_inner=sizes["feed"],
        n_layer=sizes["layers"], n_head=sizes["heads"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def flops_per_token(model: torch.nn.Module, sizes: dict[str, int], tied: bool, vocabulary: int, length: int) -> float:
    """As the case counts: 6 N + 12 L d T, N the weights that multiply; a tied table multiplies, as the output."""
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() > 1 and "wpe" not in name)
    multiplying = matrices - (0 if tied else vocabulary * sizes["hidden"])
    return 6.0 * multiplying + 12.0 * sizes["layers"] * sizes["hidden"] * length


def measure(given: argparse.Namespace, compiled: bool, checkpointing: bool) -> dict[str, Any]:
    """Tokens a second in the median of the windows, of a fresh model."""
    sizes, device = (TINY if given.tiny else PRESETS[given.preset]), torch.device(given.device)
    length, vocabulary = (64, 512) if given.tiny else (2048, VOCABULARY)
    improved = given.preset == "full"
    with device:  # billions of weights are drawn where they will live
        model = (stable_lm if improved else gpt2)(sizes, vocabulary, length).float().train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    flops = flops_per_token(model, sizes, not improved, vocabulary, length)
    fused = {"fused": True} if device.type != "cpu" else {}
    kind = torch.optim.AdamW if given.optimizer == "adamw" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-5, **fused)
    net = torch.compile(model) if compiled else model
    batches = [torch.randint(0, vocabulary, (given.batch, length), device=device) for _ in range(4)]

    def step(number: int) -> None:
        tokens = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = net(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    rates = windows(step, given.steps, given.batch * length, device)
    rate = median(rates)
    return {
        "tokens_per_s": rate,
        "samples_per_s": rate / length,
        "windows": rates,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tflops": rate * flops / 1e12,
        "flops_per_token": flops,
        "peak_gib": peak(device),
    }


def windows(step: Any, steps: int, tokens: int, device: torch.device) -> list[float]:
    """Tokens a second of each window, after a warm-up."""
    synchronise = torch.get_device_module(device.type).synchronize
    each = max(1, steps // WINDOWS)
    for number in range(max(3, each)):
        step(number)
    rates = []
    for _ in range(WINDOWS):
        synchronise()
        start = time.perf_counter()
        for number in range(each):
            step(number)
        synchronise()
        rates.append(tokens * each / (time.perf_counter() - start))
    return rates


def peak(device: torch.device) -> float | None:
    """GiB of device memory at most; of the host nothing is known."""
    module = torch.get_device_module(device.type)
    return module.max_memory_allocated() / 2**30 if hasattr(module, "max_memory_allocated") else None


def attempt(given: argparse.Namespace, compiled: bool, checkpointing: bool) -> dict[str, Any]:
    """One variant's line, whatever becomes of it."""
    line: dict[str, Any] = {
        "model": f"gpt3 {given.preset}", "batch": given.batch, "compiled": compiled, "checkpointing": checkpointing,
        "optimizer": given.optimizer, "tiny": given.tiny, "device": given.device,
        "torch": torch.__version__,
    }  # fmt: skip
    try:
        line["transformers"] = importlib.metadata.version("transformers")
        module = torch.get_device_module(given.device)
        if hasattr(module, "reset_peak_memory_stats"):
            module.reset_peak_memory_stats()
        line |= measure(given, compiled, checkpointing)
    except torch.OutOfMemoryError as problem:
        line["error"] = f"out of memory: {str(problem).splitlines()[0]}"
    except Exception as problem:  # another library's failure is a finding, and not the end of the other variants
        line["error"] = f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"
    return line


def clear(device: str) -> None:
    """Give the device's memory back before the next variant."""
    torch.compiler.reset()
    gc.collect()
    module = torch.get_device_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


def main() -> None:
    """Eager and compiled, kept and recomputed activations: four lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="full")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--tiny", action="store_true", help="a toy, to try this script")
    parser.add_argument("--eager-only", action="store_true")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for compiled in (False,) if given.eager_only else (False, True):
        for checkpointing in (False, True):
            print(json.dumps(attempt(given, compiled, checkpointing)), flush=True)
            clear(given.device)


if __name__ == "__main__":
    main()
