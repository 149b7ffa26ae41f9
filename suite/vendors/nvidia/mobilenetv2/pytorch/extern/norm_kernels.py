"""Kernels of a batch norm with ReLU6 over rows of channels, in training: each reads or writes every value once.

Rows [M, C] lie one after the other, so any number of them can be read as one long row. A tile is 2^k columns of
`width` = C times a power of two: no lane idles, and a thread keeps the sums of its columns in registers.
"""

import triton
import triton.language as tl


@triton.jit
def _activated(value, low_type: tl.constexpr):
    """1 where ReLU6 lets a gradient through; decided, as the framework does, in the precision of the output."""
    rounded = value.to(low_type).to(tl.float32)
    return (rounded > 0.0) & (rounded < 6.0)


@triton.jit
def sum_kernel(x, means, squares, rows, chunk, width, COLS: tl.constexpr, ROWS: tl.constexpr):
    """Mean of `chunk` rows of `width`, and sum of squared distances from it, a column each.

    Summed is around the first row: so a small variance does not drown in a large mean (shifted data, Chan et al. 1983).
    """
    part = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    first = part * chunk
    last = tl.minimum(first + chunk, rows)
    around = tl.load(x + first * width + column).to(tl.float32)
    one = tl.zeros([ROWS, COLS], tl.float32)
    two = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row[:, None] < last
        value = tl.load(x + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, value - around[None, :], 0.0)
        one += value
        two += value * value
    total = tl.sum(one, 0)
    size = (last - first).to(tl.float32)
    place = part * width + column
    tl.store(means + place, around + total / size)
    tl.store(squares + place, tl.sum(two, 0) - total * total / size)


@triton.jit
def group_kernel(
    means, squares, group_means, group_squares, group_sizes, parts, rows, chunk, fold, channels,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The same of `PARTS` parts together; `fold` parts share rows: one for each short row of a long one."""
    group = tl.program_id(1)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = group * PARTS + tl.arange(0, PARTS)
    inside = part[:, None] < parts
    size = tl.maximum(tl.minimum(chunk, rows - (part // fold) * chunk), 0).to(tl.float32)
    size = tl.where(part < parts, size, 0.0)
    place = part[:, None] * channels + channel[None, :]
    mean = tl.load(means + place, mask=inside, other=0.0)
    square = tl.load(squares + place, mask=inside, other=0.0)
    total = tl.sum(size, 0)
    middle = tl.sum(mean * size[:, None], 0) / total
    away = mean - middle[None, :]
    place = group * channels + channel
    tl.store(group_means + place, middle)
    tl.store(group_squares + place, tl.sum(square + away * away * size[:, None], 0))
    tl.store(group_sizes + group, total)


@triton.jit
def line_kernel(
    means, squares, sizes, weight, bias, mean, variance, scale, offset, groups, count, channels, eps,
    BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Mean and variance of each channel from its groups, and the norm as a line: y = x * scale + offset."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    group = tl.arange(0, GROUPS)
    inside = group[:, None] < groups
    size = tl.load(sizes + group, mask=group < groups, other=0.0)[:, None]
    place = group[:, None] * channels + channel[None, :]
    means = tl.load(means + place, mask=inside, other=0.0)
    middle = tl.sum(means * size, 0) / count
    away = means - middle[None, :]
    square = tl.load(squares + place, mask=inside, other=0.0)
    var = tl.maximum(tl.sum(square + away * away * size, 0) / count, 0.0)
    slope = tl.load(weight + channel) / tl.sqrt((var + eps).to(tl.float32))
    tl.store(mean + channel, middle)
    tl.store(variance + channel, var)
    tl.store(scale + channel, slope)
    tl.store(offset + channel, tl.load(bias + channel) - middle * slope)


@triton.jit
def apply_kernel(
    x, scale, offset, y, rows, chunk,
    channels, width, COLS: tl.constexpr, ROWS: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """y = x * scale + offset, then ReLU6 where asked; from the end, which the cache still holds of the sums."""
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    channel = column % channels
    slope = tl.load(scale + channel)[None, :]
    line = tl.load(offset + channel)[None, :]
    first = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64) * chunk
    last = tl.minimum(first + chunk, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row[:, None] < last
        place = row[:, None] * width + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * slope + line
        if ACTIVATE:
            value = tl.minimum(tl.maximum(value, 0.0), 6.0)
        tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def gradient_sum_kernel(
    grad, x, mean, scale, offset, total, dot, rows, chunk,
    channels, width, COLS: tl.constexpr, ROWS: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient behind the activation, and of it times x - mean, a column each."""
    part = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    channel = column % channels
    middle = tl.load(mean + channel)[None, :]
    slope = tl.load(scale + channel)[None, :]
    line = tl.load(offset + channel)[None, :]
    first = part * chunk
    last = tl.minimum(first + chunk, rows)
    one = tl.zeros([ROWS, COLS], tl.float32)
    two = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row[:, None] < last
        place = row[:, None] * width + column[None, :]
        flow = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATE:
            flow = tl.where(_activated(value * slope + line, x.dtype.element_ty), flow, 0.0)
        one += flow
        two += flow * (value - middle)
    place = part * width + column
    tl.store(total + place, tl.sum(one, 0))
    tl.store(dot + place, tl.sum(two, 0))


@triton.jit
def gradient_group_kernel(
    total, dot, group_total, group_dot, parts, channels, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """The same sums of `PARTS` parts together."""
    group = tl.program_id(1)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = group * PARTS + tl.arange(0, PARTS)
    inside = part[:, None] < parts
    place = part[:, None] * channels + channel[None, :]
    out = group * channels + channel
    tl.store(group_total + out, tl.sum(tl.load(total + place, mask=inside, other=0.0), 0))
    tl.store(group_dot + out, tl.sum(tl.load(dot + place, mask=inside, other=0.0), 0))


@triton.jit
def gradient_line_kernel(
    total, dot, weight, mean, variance, weight_grad, bias_grad, factors, groups, count, channels, eps,
    BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias, and the factors a, b, c of dx = a * du + b * x + c, a channel each."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    group = tl.arange(0, GROUPS)
    inside = group[:, None] < groups
    place = group[:, None] * channels + channel[None, :]
    flow = tl.sum(tl.load(total + place, mask=inside, other=0.0), 0)
    along = tl.sum(tl.load(dot + place, mask=inside, other=0.0), 0)
    inverse = 1.0 / tl.sqrt((tl.load(variance + channel) + eps).to(tl.float32))
    slope = tl.load(weight + channel) * inverse
    tilt = -slope * along * inverse * inverse / count
    tl.store(weight_grad + channel, along * inverse)
    tl.store(bias_grad + channel, flow)
    tl.store(factors + channel, slope)
    tl.store(factors + channels + channel, tilt)
    tl.store(factors + 2 * channels + channel, -slope * flow / count - tilt * tl.load(mean + channel))


@triton.jit
def gradient_apply_kernel(
    grad, x, scale, offset, factors, out, rows, chunk,
    channels, width, COLS: tl.constexpr, ROWS: tl.constexpr, ACTIVATE: tl.constexpr,
):  # fmt: skip
    """The gradient of x: a * du + b * x + c."""
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    channel = column % channels
    slope = tl.load(scale + channel)[None, :]
    line = tl.load(offset + channel)[None, :]
    a = tl.load(factors + channel)[None, :]
    b = tl.load(factors + channels + channel)[None, :]
    c = tl.load(factors + 2 * channels + channel)[None, :]
    first = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64) * chunk
    last = tl.minimum(first + chunk, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row[:, None] < last
        place = row[:, None] * width + column[None, :]
        flow = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATE:
            flow = tl.where(_activated(value * slope + line, x.dtype.element_ty), flow, 0.0)
        tl.store(out + place, (a * flow + b * value + c).to(out.dtype.element_ty), mask=inside)
