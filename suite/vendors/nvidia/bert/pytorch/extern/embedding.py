"""Norm and dropout over the sum of the embeddings of words, places and segments, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import embedding_kernels as kernels
from extern.blocks import block
from extern.dropping import scale, threshold
from extern.norm_kernels import ROWS

WARPS, STAGES = 4, 3
"""Of a program, as measured on an H200."""
FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 4, 8
"""Of a position, at most. Of the backward pass each leaves four sums."""
TILE = 2
"""Rows that the backward pass takes at once."""


@triton_op("trainmark::summed_embedding", mutates_args={})
def summed_embedding(
    tokens: Tensor, segments: Tensor, words: Tensor, places: Tensor, kinds: Tensor, weight: Tensor, bias: Tensor,
    seed: Tensor, eps: float, dropout: float, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """dropout(norm(words[tokens] + places + kinds[segments])) [R, T, d] of `dtype`; then what the gradient needs.

    tokens and segments [R, T] of int64, segments 0 or 1; words [V, d], places [T, d], kinds [2, d], weight and bias
    [d]; seed [1] of int64. Mean and 1 / deviation [R, T] in float32; what was kept [R / 8, T, d], a bit a value; empty
    without dropout.
    """
    (rows, count), width = tokens.shape, words.shape[1]
    groups = -(-rows // ROWS.value)
    y = words.new_empty((rows, count, width), dtype=dtype)
    mean, slope = (words.new_empty((rows, count), dtype=torch.float32) for _ in range(2))
    kept = words.new_empty((groups if dropout > 0 else 0, count, width), dtype=torch.uint8)
    wrap_triton(kernels.forward_kernel)[(count, min(groups, FORWARD_PROGRAMS))](
        tokens, segments, words, places, kinds, weight, bias, seed, y, mean, slope, kept, rows, count, width,
        BLOCK=block(width), DROPS=dropout > 0, THRESHOLD=threshold(dropout), SCALE=scale(dropout), EPS=eps,
        STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return y, mean, slope, kept


@triton_op("trainmark::summed_embedding_backward", mutates_args={})
def summed_embedding_backward(
    grad: Tensor, tokens: Tensor, segments: Tensor, words: Tensor, places: Tensor, kinds: Tensor, weight: Tensor,
    mean: Tensor, slope: Tensor, kept: Tensor, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradient of words; and of places, of the second of kinds, of weight and of bias by positions [4, T, d]."""
    (rows, count), width = tokens.shape, words.shape[1]
    programs = min(-(-rows // TILE), BACKWARD_PROGRAMS)
    words_grad = torch.zeros_like(words, dtype=torch.float32)
    sums = words.new_empty((4, programs, count, width), dtype=torch.float32)
    wrap_triton(kernels.backward_kernel)[(count, programs)](
        grad, tokens, segments, words, places, kinds, weight, mean, slope, kept, words_grad, sums, rows, count, width,
        BLOCK=block(width), DROPS=dropout > 0, SCALE=scale(dropout), STAGES=STAGES, TILE=TILE,
        TILES=ROWS.value // TILE, num_warps=WARPS,
    )  # fmt: skip
    return words_grad, sums.sum(1)


def _remember(ctx, inputs, output):
    tokens, segments, words, places, kinds, weight, *_, ctx.dropout, _ = inputs
    _, *needed = output
    ctx.save_for_backward(tokens, segments, words, places, kinds, weight, *needed)
    ctx.mark_non_differentiable(*needed)


def _backward(ctx, grad, *_):
    words, by_position = summed_embedding_backward(grad.contiguous(), *ctx.saved_tensors, ctx.dropout)
    places = by_position[0]
    every, other, weight, bias = by_position.sum(1)
    return None, None, words, places, torch.stack((every - other, other)), weight, bias, None, None, None, None


summed_embedding.register_autograd(_backward, setup_context=_remember)
