"""Layer norm over a residual and a product with its bias and dropout, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import norm_kernels as kernels
from extern.blocks import block
from extern.dropping import scale, threshold

WARPS, STAGES = 4, 3
"""Of a program, as measured on an H200."""
FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 264, 528
"""At most: multiples of the 132 multiprocessors. Of the backward pass each leaves three sums."""
TILE = 2
"""Rows that the backward pass takes at once."""


def _groups(rows: int) -> int:
    return -(-rows // kernels.ROWS.value)


@triton_op("trainmark::residual_norm", mutates_args={})
def residual_norm(
    x: Tensor, x_bias: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, eps: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """norm(total) of total = residual + dropout(x + x_bias); then what the gradient needs.

    x, residual, y and total [M, d]; x_bias, weight and bias [d]; seed [1] of int64; mean and 1 / deviation [M] of total
    in float32; what was kept [M / 8, d], a bit a value; empty without dropout.
    """
    rows, width = x.shape
    y, total = torch.empty_like(residual), torch.empty_like(residual)
    mean, slope = x.new_empty(rows, dtype=torch.float32), x.new_empty(rows, dtype=torch.float32)
    kept = x.new_empty((_groups(rows) if dropout > 0 else 0, width), dtype=torch.uint8)
    wrap_triton(kernels.forward_kernel)[(min(_groups(rows), FORWARD_PROGRAMS),)](
        x, x_bias, residual, weight, bias, seed, total, y, mean, slope, kept, rows, width,
        BLOCK=block(width), DROPS=dropout > 0, THRESHOLD=threshold(dropout), SCALE=scale(dropout), EPS=eps,
        STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return y, total, mean, slope, kept


@triton_op("trainmark::residual_norm_backward", mutates_args={})
def residual_norm_backward(
    grad: Tensor, total: Tensor, weight: Tensor, mean: Tensor, slope: Tensor, kept: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, of the residual [M, d], and of weight, bias and x_bias [3, d].

    Without dropout the first is empty: it would be the second.
    """
    rows, width = total.shape
    tiles = -(-rows // TILE)
    programs = -(-tiles // -(-tiles // BACKWARD_PROGRAMS))  # all of them with as many tiles
    total_grad = torch.empty_like(total)
    x_grad = torch.empty_like(total) if dropout > 0 else total.new_empty(0)
    sums = total.new_empty((3, programs, width), dtype=torch.float32)
    wrap_triton(kernels.backward_kernel)[(programs,)](
        grad, total, weight, mean, slope, kept, x_grad, total_grad, sums, rows, width,
        BLOCK=block(width), DROPS=dropout > 0, SCALE=scale(dropout), STAGES=STAGES, TILE=TILE,
        TILES=kernels.ROWS.value // TILE, num_warps=WARPS,
    )  # fmt: skip
    return x_grad, total_grad, sums.sum(1)


def _remember(ctx, inputs, output):
    _, _, _, weight, *_, ctx.dropout = inputs
    _, *needed = output
    total, *rest = needed
    ctx.save_for_backward(total, weight, *rest)
    ctx.mark_non_differentiable(*needed)


def _backward(ctx, grad, *_):
    x, residual, (weight, bias, x_bias) = residual_norm_backward(grad.contiguous(), *ctx.saved_tensors, ctx.dropout)
    return x if ctx.dropout > 0 else residual, x_bias, residual, weight, bias, None, None, None


residual_norm.register_autograd(_backward, setup_context=_remember)
