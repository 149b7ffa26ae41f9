"""GELU over a product and its bias, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import gelu_kernels as kernels

COLS, WARPS = 1024, 4
"""Of a program, as measured on an H200."""
FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 4224, 792
"""In all, about: multiples of the 132 multiprocessors. Backward fewer, for each leaves a sum, and loads ahead."""
STAGES = 3
"""Of that: rows on their way at once."""


def _shared_out(rows: int, width: int, programs: int) -> tuple[tuple[int, int], int]:
    """((blocks of columns, chunks of rows), rows of a chunk)."""
    blocks = -(-width // COLS)
    chunk = -(-rows // max(1, programs // blocks))
    return (blocks, -(-rows // chunk)), chunk


@triton_op("trainmark::bias_gelu", mutates_args={})
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias), x [M, d] and bias [d]."""
    rows, width = x.shape
    y = torch.empty_like(x)
    grid, chunk = _shared_out(rows, width, FORWARD_PROGRAMS)
    wrap_triton(kernels.forward_kernel)[grid](x, bias, y, rows, width, chunk, COLS=COLS, num_warps=WARPS)
    return y


@triton_op("trainmark::bias_gelu_backward", mutates_args={})
def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x [M, d] and of bias [d]."""
    rows, width = x.shape
    x_grad = torch.empty_like(x)
    grid, chunk = _shared_out(rows, width, BACKWARD_PROGRAMS)
    sums = x.new_empty((grid[1], width), dtype=torch.float32)
    wrap_triton(kernels.backward_kernel)[grid](
        grad, x, bias, x_grad, sums, rows, width, chunk, COLS=COLS, STAGES=STAGES, num_warps=WARPS
    )
    return x_grad, sums.sum(0)


def _remember(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    return bias_gelu_backward(grad.contiguous(), *ctx.saved_tensors)


bias_gelu.register_autograd(_backward, setup_context=_remember)
