"""A dense convolution of 3 x 3 over few channels, and the gradient of its weight, as products of matrices.

Images [N, H, W, C] are padded by one. The window of a place is a row of TAPS values, of which the first 9 * C are real,
ordered as they lie: line, column, colour. So a line of the window is 3 * C neighbours. A thread holds the whole window
of a place, and CHANNELS is known to the compiler: what depends on the tap is a constant, and takes no register. A tile
is TALL x BROAD places of one image, and the next tile lies below it: it reads lines that the cache still holds.
"""

import triton
import triton.language as tl


@triton.jit
def stem_kernel(
    x, weight, y, high, wide, out_high, out_wide, down, across, tiles, chunk, stride,
    CHANNELS: tl.constexpr, TALL: tl.constexpr, BROAD: tl.constexpr, TAPS: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """`y` [N, out_high, out_wide, OUT] from `x` and `weight` [OUT, 9 * CHANNELS]; a program takes `chunk` tiles."""
    out = tl.arange(0, OUT)
    tap = tl.arange(0, TAPS)
    real = (tap < 9 * CHANNELS)[:, None]
    kernel = tl.load(weight + out[None, :] * (9 * CHANNELS) + tap[:, None], mask=real, other=0.0)
    kernel = kernel.to(x.dtype.element_ty)
    first = tl.program_id(0) * chunk
    for tile in range(first, tl.minimum(first + chunk, tiles)):
        image, row, column = _place(tile, down, across, TALL, BROAD)
        there = (row < out_high) & (column < out_wide)
        window = _window(x, image, row, column, there, high, wide, stride, CHANNELS, TAPS)
        value = tl.dot(window, kernel, input_precision="ieee")
        place = ((image * out_high + row) * out_wide + column)[:, None] * OUT + out[None, :]
        tl.store(y + place, value.to(y.dtype.element_ty), mask=there[:, None])


@triton.jit
def stem_gradient_kernel(
    grad, x, parts, high, wide, out_high, out_wide, down, across, tiles, chunk, stride,
    CHANNELS: tl.constexpr, TALL: tl.constexpr, BROAD: tl.constexpr, TAPS: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """`parts` [programs, OUT, 9 * CHANNELS]: the weight's gradient from `chunk` tiles of `grad` and `x` each."""
    out = tl.arange(0, OUT)
    tap = tl.arange(0, TAPS)
    part = tl.program_id(0)
    first = part * chunk
    total = tl.zeros([TAPS, OUT], tl.float32)
    for tile in range(first, tl.minimum(first + chunk, tiles)):
        image, row, column = _place(tile, down, across, TALL, BROAD)
        there = (row < out_high) & (column < out_wide)
        window = _window(x, image, row, column, there, high, wide, stride, CHANNELS, TAPS)
        place = ((image * out_high + row) * out_wide + column)[:, None] * OUT + out[None, :]
        flow = tl.load(grad + place, mask=there[:, None], other=0.0)
        total = tl.dot(tl.trans(window), flow, total, input_precision="ieee")
    place = (part * OUT + out[None, :]) * (9 * CHANNELS) + tap[:, None]
    tl.store(parts + place, total, mask=(tap < 9 * CHANNELS)[:, None])


@triton.jit
def _place(tile, down, across, TALL: tl.constexpr, BROAD: tl.constexpr):
    """Image of a tile, and rows and columns [TALL * BROAD] of its places; tiles go down, then across, then on."""
    strip = tile // down
    image = strip // across
    place = tl.arange(0, TALL * BROAD)
    row = (tile - strip * down) * TALL + place // BROAD
    column = (strip - image * across) * BROAD + place % BROAD
    return image.to(tl.int64), row, column


@triton.jit
def _window(x, image, row, column, there, high, wide, stride, CHANNELS: tl.constexpr, TAPS: tl.constexpr):
    """[places, TAPS]: what the kernel sees from each place; 0 outside of the image, and where no tap is real."""
    tap = tl.arange(0, TAPS)
    line = tap // (3 * CHANNELS)
    along = tap % (3 * CHANNELS)
    width = wide * CHANNELS
    top = row * stride - 1
    left = (column * stride - 1) * CHANNELS
    i = top[:, None] + line[None, :]
    j = left[:, None] + along[None, :]
    inside = (i >= 0) & (i < high) & (j >= 0) & (j < width) & (line < 3)[None, :] & there[:, None]
    corner = (image * high + top) * width + left
    return tl.load(x + corner[:, None] + (line * width + along)[None, :], mask=inside, other=0.0)
