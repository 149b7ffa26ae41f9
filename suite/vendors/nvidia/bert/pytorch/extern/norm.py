"""Layer norm over a residual and a product with its bias and dropout, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import norm_kernels as kernels

FORWARD_WARPS, BACKWARD_WARPS = 4, 1
"""That share a program, as measured on an H200."""
PROGRAMS = 1056
"""Of the backward pass, at most: a multiple of the 132 multiprocessors."""
BITS = 16
"""Random ones to a decision, so its probability is exact to 2**-17."""


def _threshold(dropout: float) -> int:
    """Random numbers below it drop."""
    return round(dropout * 2**BITS)


def _scale(dropout: float) -> float:
    """Of what is kept."""
    return 2**BITS / (2**BITS - _threshold(dropout))


def _groups(rows: int) -> int:
    return -(-rows // kernels.ROWS.value)


def _block(width: int) -> int:
    """The next power of two."""
    return 1 << (width - 1).bit_length()


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
    wrap_triton(kernels.forward_kernel)[(_groups(rows),)](
        x, x_bias, residual, weight, bias, seed, total, y, mean, slope, kept, rows, width,
        BLOCK=_block(width), DROPS=dropout > 0, THRESHOLD=_threshold(dropout), SCALE=_scale(dropout), EPS=eps,
        num_warps=FORWARD_WARPS,
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
    groups = _groups(rows)
    programs = -(-groups // -(-groups // PROGRAMS))  # all of them with as many groups
    total_grad = torch.empty_like(total)
    x_grad = torch.empty_like(total) if dropout > 0 else total.new_empty(0)
    sums = total.new_empty((3, programs, width), dtype=torch.float32)
    wrap_triton(kernels.backward_kernel)[(programs,)](
        grad, total, weight, mean, slope, kept, x_grad, total_grad, sums, rows, width,
        BLOCK=_block(width), DROPS=dropout > 0, SCALE=_scale(dropout), num_warps=BACKWARD_WARPS,
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
