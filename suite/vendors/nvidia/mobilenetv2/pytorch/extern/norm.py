"""Batch norm with ReLU6 over rows of channels, as one operator with a gradient."""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import norm_kernels as kernels
from extern.tiling import GROUP, Load, Tiling, block, power

SUM = Load(rows=16, warps=4, programs=528)
GRADIENT_SUM = Load(rows=8, warps=2, programs=2112)
MAP = Load(rows=16, warps=8, programs=1056)


@triton_op("trainmark::norm_relu6", mutates_args={})
def norm_relu6(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activate: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(y [M, C], mean [C], biased variance [C], scale and offset [2, C]) of x [M, C]; all but y in float32."""
    count, channels = x.shape
    tiling, few = Tiling.of(count, channels, SUM), block(channels)
    sums = x.new_empty((2, tiling.sums, channels), dtype=torch.float32)
    groups = x.new_empty((2, tiling.groups, channels), dtype=torch.float32)
    sizes = x.new_empty(tiling.groups, dtype=torch.float32)
    mean, variance = x.new_empty(channels, dtype=torch.float32), x.new_empty(channels, dtype=torch.float32)
    line = x.new_empty((2, channels), dtype=torch.float32)
    wrap_triton(kernels.sum_kernel)[tiling.grid](x, sums[0], sums[1], tiling.long_rows, tiling.chunk, **tiling.words())
    wrap_triton(kernels.group_kernel)[(channels // few, tiling.groups)](
        sums[0], sums[1], groups[0], groups[1], sizes, tiling.sums, tiling.long_rows, tiling.chunk,
        tiling.fold, channels, BLOCK=few, PARTS=GROUP,
    )  # fmt: skip
    wrap_triton(kernels.line_kernel)[(channels // few,)](
        groups[0], groups[1], sizes, weight, bias, mean, variance, line[0], line[1],
        tiling.groups, count, channels, eps, BLOCK=few, GROUPS=power(tiling.groups),
    )  # fmt: skip
    y, tiling = torch.empty_like(x), Tiling.of(count, channels, MAP)
    wrap_triton(kernels.apply_kernel)[tiling.grid](
        x, line[0], line[1], y, tiling.long_rows, tiling.chunk, channels=channels, ACTIVATE=activate, **tiling.words()
    )
    return y, mean, variance, line


@triton_op("trainmark::norm_relu6_backward", mutates_args={})
def norm_relu6_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, line: Tensor, eps: float, activate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x [M, C], weight [C] and bias [C] from that of y."""
    count, channels = x.shape
    tiling, few = Tiling.of(count, channels, GRADIENT_SUM), block(channels)
    sums = x.new_empty((2, tiling.sums, channels), dtype=torch.float32)
    groups = x.new_empty((2, tiling.groups, channels), dtype=torch.float32)
    factors = x.new_empty((3, channels), dtype=torch.float32)
    weight_grad, bias_grad = torch.empty_like(weight), torch.empty_like(weight)
    wrap_triton(kernels.gradient_sum_kernel)[tiling.grid](
        grad, x, mean, line[0], line[1], sums[0], sums[1], tiling.long_rows, tiling.chunk,
        channels=channels, ACTIVATE=activate, **tiling.words(),
    )  # fmt: skip
    wrap_triton(kernels.gradient_group_kernel)[(channels // few, tiling.groups)](
        sums[0], sums[1], groups[0], groups[1], tiling.sums, channels, BLOCK=few, PARTS=GROUP
    )
    wrap_triton(kernels.gradient_line_kernel)[(channels // few,)](
        groups[0], groups[1], weight, mean, variance, weight_grad, bias_grad, factors,
        tiling.groups, count, channels, eps, BLOCK=few, GROUPS=power(tiling.groups),
    )  # fmt: skip
    out, tiling = torch.empty_like(x), Tiling.of(count, channels, MAP)
    wrap_triton(kernels.gradient_apply_kernel)[tiling.grid](
        grad, x, line[0], line[1], factors, out, tiling.long_rows, tiling.chunk,
        channels=channels, ACTIVATE=activate, **tiling.words(),
    )  # fmt: skip
    return out, weight_grad, bias_grad


def _remember(ctx, inputs, output):
    x, weight, _, ctx.eps, ctx.activate = inputs
    _, mean, variance, line = output
    ctx.save_for_backward(x, weight, mean, variance, line)
    ctx.mark_non_differentiable(mean, variance, line)


def _backward(ctx, grad, *_):
    saved = ctx.saved_tensors
    x, weight, bias = norm_relu6_backward(grad.contiguous(), *saved, ctx.eps, ctx.activate)
    return x, weight, bias, None, None


norm_relu6.register_autograd(_backward, setup_context=_remember)
