"""Attention within short rows over queries, keys and values as products make them; one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import attention_kernels as kernels
from extern.blocks import block
from extern.dropping import scale, threshold

LONGEST = 128
"""Tokens of a row, and queries: its scores, twice, are what the registers of a program hold."""
SHORTEST = 16
"""Rows of a product, of which some may be empty."""
SIZES = (16, 32, 64)
"""Of a head."""
QUERIES, FORWARD_WARPS = 64, 4
"""Of a program, as measured on an H200."""
BACKWARD_WARPS, STAGES = 8, 2
"""So that a program loads one head while it computes another."""
PROGRAMS = 132
"""Of the backward pass, about: one to a multiprocessor."""
PRECISION = "tf32x3"
"""Of products of float32: three of TF32 on parts of the numbers, as exact as one of float32."""


SHARED_MEMORY = 192 * 1024
"""Bytes that a program of the backward pass asks for at most. A card with less keeps the standard part: GPUs before the
H100, where nobody has measured these kernels."""


def room() -> bool:
    """Whether the cards here, if any, can run the kernels."""
    cards = range(torch.cuda.device_count())
    return all(torch.cuda.get_device_properties(card).shared_memory_per_block_optin >= SHARED_MEMORY for card in cards)


def takes(tokens: int, asked: int, size: int) -> bool:
    """Whether these kernels compute rows of `tokens`, of which `asked` ask, and heads of `size`."""
    return max(tokens, asked) <= LONGEST and size in SIZES


def _sizes(query: Tensor, packed: Tensor, tokens: int) -> tuple[Tensor, int, int, int]:
    """(the tensor with the queries, rows, queries of a row, width of all heads)."""
    rows = packed.shape[0] // tokens
    if query.numel() == 0:
        return packed, rows, tokens, packed.shape[1] // 3
    return query, rows, query.shape[0] // rows, query.shape[1]


def _settings(tokens: int, asked: int, size: int, bias: Tensor, dropout: float) -> dict:
    keys, queries = max(SHORTEST, block(tokens)), max(SHORTEST, block(asked))
    return {
        "BLOCK": keys, "ASKED": queries, "SIZE": size, "STEEP": size**-0.5, "BIASED": bias.numel() > 0,
        "FULL": tokens == keys, "DROPS": dropout > 0, "THRESHOLD": threshold(dropout), "SCALE": scale(dropout),
        "PRECISION": PRECISION,
    }  # fmt: skip


@triton_op("trainmark::row_attention", mutates_args={})
def row_attention(
    query: Tensor, packed: Tensor, product_bias: Tensor, bias: Tensor, seed: Tensor, tokens: int, heads: int,
    dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Context [queries, d] of rows of `tokens` each; then what the gradient needs.

    packed [M, 3 d]: queries, keys and values of every token; or query [queries, d], as many of each row, and packed
    [M, 2 d]. product_bias [3 d] is already in them: it is given for its gradient. bias [M / tokens, tokens] is added to
    every score of a key, or empty; seed [1] of int64, or empty without dropout.
    """
    asks, rows, asked, width = _sizes(query, packed, tokens)
    settings = _settings(tokens, asked, width // heads, bias, dropout)
    queries = min(QUERIES, settings["ASKED"])
    context = packed.new_empty((rows * asked, width))
    total = packed.new_empty((rows * heads, settings["ASKED"]), dtype=torch.float32)
    wrap_triton(kernels.forward_kernel)[(rows * heads * (settings["ASKED"] // queries),)](
        asks, packed, bias, seed, context, total, tokens, asked, heads, asks.shape[1], packed.shape[1],
        QUERIES=queries, num_warps=FORWARD_WARPS, **settings,
    )  # fmt: skip
    return context, total


@triton_op("trainmark::row_attention_backward", mutates_args={})
def row_attention_backward(
    grad: Tensor, query: Tensor, packed: Tensor, bias: Tensor, seed: Tensor, total: Tensor, tokens: int, heads: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, of packed, and of product_bias [3 d] in float32."""
    asks, rows, asked, width = _sizes(query, packed, tokens)
    query_grad, packed_grad = torch.empty_like(query), torch.empty_like(packed)
    parts = max(1, min(PROGRAMS // heads, rows))
    sums = packed.new_empty((parts, 3 * width), dtype=torch.float32)
    wrap_triton(kernels.backward_kernel)[(parts * heads,)](
        grad, asks, packed, bias, seed, total, query_grad, packed_grad, sums, rows, tokens, asked, heads, asks.shape[1],
        packed.shape[1], num_warps=BACKWARD_WARPS, APART=asks is query,
        STAGES=STAGES if packed.dtype.itemsize == 2 else 1, **_settings(tokens, asked, width // heads, bias, dropout),
    )  # fmt: skip
    return query_grad, packed_grad, sums.sum(0)


def _remember(ctx, inputs, output):
    query, packed, _, bias, seed, *ctx.numbers = inputs
    _, total = output
    ctx.save_for_backward(query, packed, bias, seed, total)
    ctx.mark_non_differentiable(total)


def _backward(ctx, grad, _):
    query, packed, product_bias = row_attention_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.numbers)
    return query, packed, product_bias, None, None, None, None, None


row_attention.register_autograd(_backward, setup_context=_remember)
