"""A depthwise convolution of 3 x 3 as one operator, whose gradients take the fastest way that was found.

The library's kernels are kept where they are the faster ones: forward, and for the gradient of the weights. For that of
the input they take up to five times what their bytes need: with stride 1 it is a forward convolution whose window is
turned round, with stride 2 a kernel of our own.
"""

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern.depthwise_kernels import quad_kernel

TILE = 1024
"""Values of a tile."""


@triton_op("trainmark::depthwise", mutates_args={})
def depthwise(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """[N, H', W', C] of x [N, H, W, C] and weight [C, 9] in float32, padded by one; H' = ceil(H / stride)."""
    return _forward(x, weight, stride)


@triton_op("trainmark::depthwise_backward", mutates_args={})
def depthwise_backward(grad: Tensor, x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Gradients of x [N, H, W, C] and weight [C, 9]."""
    kernel = weight.to(x.dtype).view(-1, 1, 3, 3)
    _, slope, _ = torch.ops.aten.convolution_backward(
        grad.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), kernel, None,
        [stride, stride], [1, 1], [1, 1], False, [0, 0], len(kernel), [False, True, False],
    )  # fmt: skip
    back = _forward(grad, weight.flip(1), 1) if stride == 1 else _quad(grad, weight, x.shape[1], x.shape[2])
    return back, slope.to(weight.dtype).view(weight.shape)


def _forward(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    kernel = weight.to(x.dtype).view(-1, 1, 3, 3)
    y = torch.ops.aten.convolution(
        x.permute(0, 3, 1, 2), kernel, None, [stride, stride], [1, 1], [1, 1], False, [0, 0], len(kernel)
    )
    return y.permute(0, 2, 3, 1).contiguous()


def _quad(grad: Tensor, weight: Tensor, high: int, wide: int) -> Tensor:
    """Stride 2: the gradient of x [N, high, wide, C]."""
    images, out_high, out_wide, channels = grad.shape
    out = grad.new_empty((images, high, wide, channels))
    block, broad = min(channels & -channels, 32), 8
    tall = max(1, min(8, TILE // block // broad))
    down, across = -(-out_high // tall), -(-out_wide // broad)
    wrap_triton(quad_kernel)[(images * down * across, channels // block)](
        grad, weight, out, high, wide, out_high, out_wide, down, across, channels,
        TALL=tall, BROAD=broad, BLOCK=block,
    )  # fmt: skip
    return out


def _remember(ctx, inputs, output):
    x, weight, ctx.stride = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx, grad):
    x, weight = depthwise_backward(grad.contiguous(), *ctx.saved_tensors, ctx.stride)
    return x, weight, None


depthwise.register_autograd(_backward, setup_context=_remember)
