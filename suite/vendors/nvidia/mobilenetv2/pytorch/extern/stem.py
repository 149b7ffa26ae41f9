"""The first convolution, of 3 x 3 over the colours of an image, as one operator with a gradient for its weight.

The library has no engine for three channels: it computes the output by a generic one, and copies images and gradients
to a padded number of channels before it computes the gradient of the weight.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from extern import stem_kernels as kernels

TAPS = 32
"""Columns of a window as a matrix; what is beyond the nine taps of each channel is 0."""
OUTPUTS = (16, 32, 64)
"""Numbers of output channels that a product of matrices takes as they are."""
PLACES = 128
"""Rows of such a matrix: places of a tile."""
PROGRAMS = 4224
"""Aimed at, forward: thirty-two for each of the 132 multiprocessors of an H100 or H200."""
PARTS = 528
"""Programs aimed at for the gradient, whose sums are summed: four for each multiprocessor."""
WARPS = 4


def takes(convolution: torch.nn.Conv2d) -> bool:
    """Whether the operator computes this convolution."""
    return (
        convolution.kernel_size == (3, 3)
        and convolution.groups == 1
        and convolution.in_channels * 9 <= TAPS
        and convolution.out_channels in OUTPUTS
        and convolution.padding == (1, 1)
        and convolution.dilation == (1, 1)
        and convolution.stride[0] == convolution.stride[1]
        and convolution.bias is None
    )


@dataclass(frozen=True)
class Tiling:
    """How outputs [N, out_high, out_wide] are cut: tiles of `tall` x `broad` places, `down` x `across` an image."""

    out_high: int
    out_wide: int
    tall: int
    broad: int
    down: int
    across: int
    tiles: int

    @classmethod
    def of(cls, x: Tensor, stride: int) -> "Tiling":
        """For images [N, H, W, C]: a tile is as broad as a row, up to PLACES, and as tall as makes it PLACES."""
        images, high, wide, _ = x.shape
        out_high, out_wide = (high - 1) // stride + 1, (wide - 1) // stride + 1
        broad = min(1 << (out_wide - 1).bit_length(), PLACES)
        tall = PLACES // broad
        down, across = -(-out_high // tall), -(-out_wide // broad)
        return cls(out_high, out_wide, tall, broad, down, across, images * down * across)

    def chunk(self, programs: int) -> int:
        """Tiles that each of about `programs` programs takes."""
        return -(-self.tiles // programs)


@triton_op("trainmark::stem", mutates_args={})
def stem(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """[N, H', W', OUT] of x [N, H, W, C] and weight [OUT, 9 * C], padded by one; H' = ceil(H / stride).

    The weight's taps are ordered as the window lies: line, column, colour. Products are in x's dtype, their sums in
    float32. OUT is one of OUTPUTS, 9 * C at most TAPS, and x asks for no gradient.
    """
    tiling = Tiling.of(x, stride)
    y = x.new_empty((len(x), tiling.out_high, tiling.out_wide, len(weight)))
    chunk = tiling.chunk(PROGRAMS)
    wrap_triton(kernels.stem_kernel)[(-(-tiling.tiles // chunk),)](
        x, weight, y, x.shape[1], x.shape[2], tiling.out_high, tiling.out_wide, tiling.down, tiling.across,
        tiling.tiles, chunk, stride, CHANNELS=x.shape[3],
        TALL=tiling.tall, BROAD=tiling.broad, TAPS=TAPS, OUT=len(weight), num_warps=WARPS,
    )  # fmt: skip
    return y


@triton_op("trainmark::stem_backward", mutates_args={})
def stem_backward(grad: Tensor, x: Tensor, stride: int) -> Tensor:
    """Gradient [OUT, 9 * C] of the weight in float32, from those of y [N, H', W', OUT]."""
    tiling, channels, outputs = Tiling.of(x, stride), x.shape[3], grad.shape[3]
    chunk = tiling.chunk(PARTS)
    programs = -(-tiling.tiles // chunk)
    parts = x.new_empty((programs, outputs, 9 * channels), dtype=torch.float32)
    wrap_triton(kernels.stem_gradient_kernel)[(programs,)](
        grad, x, parts, x.shape[1], x.shape[2], tiling.out_high, tiling.out_wide, tiling.down, tiling.across,
        tiling.tiles, chunk, stride, CHANNELS=channels,
        TALL=tiling.tall, BROAD=tiling.broad, TAPS=TAPS, OUT=outputs, num_warps=WARPS,
    )  # fmt: skip
    return parts.sum(0)


def _remember(ctx, inputs, output):
    x, weight, ctx.stride = inputs
    ctx.dtype = weight.dtype
    ctx.save_for_backward(x)


def _backward(ctx, grad):
    if ctx.needs_input_grad[0]:
        raise RuntimeError("trainmark::stem has no gradient of its images: use the framework's convolution for it")
    (x,) = ctx.saved_tensors
    return None, stem_backward(grad.contiguous(), x, ctx.stride).to(ctx.dtype), None


stem.register_autograd(_backward, setup_context=_remember)
