"""The gradient of a depthwise convolution of 3 x 3 with stride 2, over images [N, H, W, C], padded by one.

A place of the output and its three neighbours below and to the right make the gradients of four places of the input:
four values are read where the window of each place would ask for nine.
"""

import triton
import triton.language as tl


@triton.jit
def quad_kernel(
    grad, weight, out, high, wide, out_high, out_wide, tiles_down, tiles_across, channels,
    TALL: tl.constexpr, BROAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`out` [N, high, wide, C] from `grad` [N, out_high, out_wide, C], in tiles of TALL x BROAD places."""
    index = tl.program_id(0)
    image = (index // (tiles_down * tiles_across)).to(tl.int64)
    place = tl.arange(0, TALL * BROAD)
    row = (index // tiles_across) % tiles_down * TALL + place // BROAD
    column = index % tiles_across * BROAD + place % BROAD
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    origin = image * out_high
    here = _seen(grad, origin, row, column, out_high, out_wide, channel, channels)
    right = _seen(grad, origin, row, column + 1, out_high, out_wide, channel, channels)
    below = _seen(grad, origin, row + 1, column, out_high, out_wide, channel, channels)
    across = _seen(grad, origin, row + 1, column + 1, out_high, out_wide, channel, channels)
    origin = image * high
    value = here * _weight(weight, channel, 4)
    _put(out, value, origin, 2 * row, 2 * column, high, wide, channel, channels)
    value = here * _weight(weight, channel, 5) + right * _weight(weight, channel, 3)
    _put(out, value, origin, 2 * row, 2 * column + 1, high, wide, channel, channels)
    value = here * _weight(weight, channel, 7) + below * _weight(weight, channel, 1)
    _put(out, value, origin, 2 * row + 1, 2 * column, high, wide, channel, channels)
    value = here * _weight(weight, channel, 8) + right * _weight(weight, channel, 6)
    value += below * _weight(weight, channel, 2) + across * _weight(weight, channel, 0)
    _put(out, value, origin, 2 * row + 1, 2 * column + 1, high, wide, channel, channels)


@triton.jit
def _seen(x, origin, i, j, high, wide, channel, channels):
    """x at (i, j), and 0 outside of the image."""
    place = ((origin + i) * wide + j)[:, None] * channels + channel[None, :]
    return tl.load(x + place, mask=((i < high) & (j < wide))[:, None], other=0.0).to(tl.float32)


@triton.jit
def _put(out, value, origin, i, j, high, wide, channel, channels):
    place = ((origin + i) * wide + j)[:, None] * channels + channel[None, :]
    tl.store(out + place, value.to(out.dtype.element_ty), mask=((i < high) & (j < wide))[:, None])


@triton.jit
def _weight(weight, channel, tap):
    return tl.load(weight + channel * 9 + tap)[None, :]
