"""Model FLOP of training by named formulas: forward 2 a multiply-accumulate, backward twice that, no recomputation.

Standard library and Python 3.8 only: cases import it inside the sandbox. A count that includes recomputed work makes a
hardware utilisation (HFU), everything else a model utilisation (MFU); `FORMULAS` says which is which.
"""

from __future__ import annotations

FORMULAS: dict[str, str] = {
    "nominal": "6 N a token; no attention term",
    "palm": "6 N + 12 L H Q T a token; attention over the full context, not halved for causality",
    "palm_causal": "6 N + 6 L H Q T a token; attention halved for the causal mask",
    "megatron": "72 B s L h^2 (1 + s/(6h) + V/(12 L h)) an iteration",
    "megatron_recompute": "96 B s L h^2 (1 + s/(6h) + V/(16 L h)) an iteration with full recomputation (HFU)",
    "lora": "4 N frozen + 6 N trained + 12 L H Q T a token; frozen weights need no weight gradient",
    "convolution": "3 x the forward FLOP of one image (2 FLOP a multiply-accumulate)",
    "counted": "3 x the forward FLOP counted for this model's own shapes",
    "counted_lora": "forward pass, activation gradients and the adapters' weight gradients, counted for own shapes",
    "products": "forward and backward FLOP of every product that this model really computes, and of no other",
}
"""Every formula's name as it stands in run_start's `flops_formula`, and what it counts."""


def attention(layers: int, heads: int, head_dim: int, context: float) -> float:
    """Score and value products of a token that sees `context` positions, forward and backward: 12 L H Q T."""
    return 12.0 * layers * heads * head_dim * context


def nominal(params: float) -> float:
    """FLOP a token without attention: 6 N. With a model's nominal size this is FlagPerf's figure."""
    return 6.0 * params


def palm(params: float, layers: int, heads: int, head_dim: int, context: float) -> float:
    """FLOP a token, PaLM appendix B: 6 N + 12 L H Q T. Whether N holds the embedding is the caller's to say."""
    return nominal(params) + attention(layers, heads, head_dim, context)


def palm_causal(params: float, layers: int, heads: int, head_dim: int, context: float) -> float:
    """FLOP a token with attention halved, as a causal mask leaves it: 6 N + 6 L H Q T."""
    return nominal(params) + attention(layers, heads, head_dim, context) / 2


def megatron(batch: int, sequence: int, layers: int, hidden: int, vocabulary: int, recompute: bool = False) -> float:
    """FLOP an iteration, Narayanan 2021. `recompute` adds a second forward pass, of all but the logit layer: HFU."""
    factor, divisor = (96.0, 16.0) if recompute else (72.0, 12.0)
    terms = 1 + sequence / (6.0 * hidden) + vocabulary / (divisor * layers * hidden)
    return factor * batch * sequence * layers * hidden**2 * terms


def lora(frozen: float, trained: float, layers: int, heads: int, head_dim: int, context: float) -> float:
    """FLOP a token of low-rank adaptation: frozen weights pay forward and activation gradient only."""
    return 4.0 * frozen + 6.0 * trained + attention(layers, heads, head_dim, context)


def sequence_of(params: float, layers: int, hidden: int, sequence: int) -> float:
    """FLOP a sequence: 3 (2 N s + 4 L d s^2). Equal to `palm` times s where heads x head size is the hidden size."""
    return 3.0 * (2.0 * params * sequence + 4.0 * layers * hidden * float(sequence) ** 2)


def convolution(forward_flops: float) -> float:
    """FLOP an image: three times the forward pass."""
    return 3.0 * forward_flops


def hfu_over_mfu(forward_flops: float, recomputed_flops: float) -> float:
    """Hardware over model utilisation: 1 + recomputed / (3 forward), so 4/3 when all is recomputed."""
    return 1.0 + recomputed_flops / (3.0 * forward_flops)


def utilisation(flops: float, units_per_s: float, peak_tflops: float) -> float:
    """The fraction of a dense peak that `units_per_s` units of `flops` each amount to."""
    return flops * units_per_s / (peak_tflops * 1e12)
