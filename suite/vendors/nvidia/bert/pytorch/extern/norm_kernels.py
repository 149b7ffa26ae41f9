"""Kernels of a layer norm over the sum of a residual and of what dropout leaves: every value is read and written once.

A program takes rows by eight. One call of Philox gives four words, and each half of one decides whether a row keeps its
value in that column: eight rows need a single call. What was decided is kept in one byte for the backward pass.
"""

import triton
import triton.language as tl

ROWS = tl.constexpr(8)
ROUNDS = tl.constexpr(7)
"""Of Philox: as many as pass BigCrush (Salmon et al., SC 2011, table 2)."""


@triton.jit
def _decided(word, pair: tl.constexpr, THRESHOLD: tl.constexpr):
    """Two bits, of rows 2 * pair and the next: 1 where 16 random bits are not below THRESHOLD."""
    least: tl.constexpr = THRESHOLD << 16
    low = tl.where((word << 16) >= least, 1 << (2 * pair), 0)
    return low | tl.where(word >= least, 2 << (2 * pair), 0)


@triton.jit
def forward_kernel(
    x, x_bias, residual, weight, bias, seed, total, y, mean, slope, kept, rows, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """total = residual + dropout(x + x_bias); y = norm(total); kept [groups of eight rows, width] one bit a row."""
    group = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide = tl.full((), 0, tl.int64) + width  # of products that would not fit into 32 bits
    added = tl.load(x_bias + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        one, two, three, four = tl.randint4x(tl.load(seed), group * BLOCK + column, ROUNDS)
        bits = _decided(one, 0, THRESHOLD) | _decided(two, 1, THRESHOLD)
        bits |= _decided(three, 2, THRESHOLD) | _decided(four, 3, THRESHOLD)
        tl.store(kept + group * wide + column, bits.to(tl.uint8), mask=inside)
    first = group * ROWS
    for row in range(first, tl.minimum(first + ROWS, rows)):
        place = row * wide + column
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added
        if DROPS:
            value = tl.where(((bits >> (row - first)) & 1) != 0, value * SCALE, 0.0)
        value += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + place, value.to(total.dtype.element_ty), mask=inside)
        middle = tl.sum(value, 0) / width
        away = tl.where(inside, value - middle, 0.0)
        steep = tl.rsqrt(tl.sum(away * away, 0) / width + EPS)
        tl.store(y + place, (away * steep * w + b).to(y.dtype.element_ty), mask=inside)
        tl.store(mean + row, middle)
        tl.store(slope + row, steep)


@triton.jit
def _both(one, two, other_one, other_two):
    return one + other_one, two + other_two


@triton.jit
def backward_kernel(
    grad, total, weight, mean, slope, kept, x_grad, total_grad, sums, rows, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Gradients of x and the residual; of weight, bias and x_bias those of each program's rows [3, programs, width]."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide = tl.full((), 0, tl.int64) + width
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    of_x = tl.zeros([BLOCK], tl.float32)
    for group in range(program, tl.cdiv(rows, ROWS), programs):
        first = group * ROWS
        if DROPS:
            bits = tl.load(kept + group * wide + column, mask=inside, other=0).to(tl.int32)
        for row in range(first, tl.minimum(first + ROWS, rows)):
            place = row * wide + column
            flow = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
            value = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
            steep = tl.load(slope + row)
            normal = (value - tl.load(mean + row)) * steep
            of_weight += flow * normal
            of_bias += flow
            flow *= w
            along, middle = tl.reduce((flow * normal, flow), 0, _both)
            back = (flow - normal * (along / width) - middle / width) * steep
            tl.store(total_grad + place, back.to(total_grad.dtype.element_ty), mask=inside)
            if DROPS:
                back = tl.where(((bits >> (row - first)) & 1) != 0, back * SCALE, 0.0)
                tl.store(x_grad + place, back.to(x_grad.dtype.element_ty), mask=inside)
            of_x += back
    place = program * width + column
    tl.store(sums + place, of_weight, mask=inside)
    tl.store(sums + programs * width + place, of_bias, mask=inside)
    tl.store(sums + 2 * programs * width + place, of_x, mask=inside)
