"""Kernels of a layer norm over the sum of a residual and of what dropout leaves: every value is read and written once.

A program takes rows by eight, and loads the next while it computes some. One call of Philox gives four words, and each
half of one decides whether a row keeps its value in that column: eight rows need a single call. What was decided is
kept in one byte for the backward pass.
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
def decisions(seed, call, THRESHOLD: tl.constexpr):
    """Eight bits for each `call`, one to a row: 1 where it keeps its value."""
    one, two, three, four = tl.randint4x(tl.load(seed), call, ROUNDS)
    bits = _decided(one, 0, THRESHOLD) | _decided(two, 1, THRESHOLD)
    return bits | _decided(three, 2, THRESHOLD) | _decided(four, 3, THRESHOLD)


@triton.jit
def kept_of(bits, row):
    """[rows, columns] whether the bits of [columns] keep `row` of their eight."""
    return ((bits[None, :] >> row[:, None]) & 1) != 0


@triton.jit
def forward_kernel(
    x, x_bias, residual, weight, bias, seed, total, y, mean, slope, kept, rows, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, EPS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """total = residual + dropout(x + x_bias); y = norm(total); kept [groups of eight rows, width] one bit a row."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide = tl.full((), 0, tl.int64) + width  # of products that would not fit into 32 bits
    added = tl.load(x_bias + column, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    for group in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = group * ROWS + tl.arange(0, ROWS)
        both = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * wide + column[None, :]
        value = tl.load(x + place, mask=both, other=0.0).to(tl.float32) + added[None, :]
        beside = tl.load(residual + place, mask=both, other=0.0).to(tl.float32)
        if DROPS:
            bits = decisions(seed, group * BLOCK + column, THRESHOLD)
            tl.store(kept + group * wide + column, bits.to(tl.uint8), mask=inside)
            value = tl.where(kept_of(bits, tl.arange(0, ROWS)), value * SCALE, 0.0)
        value += beside
        tl.store(total + place, value.to(total.dtype.element_ty), mask=both)
        middle = tl.sum(value, 1) / width
        away = tl.where(inside[None, :], value - middle[:, None], 0.0)
        steep = tl.rsqrt(tl.sum(away * away, 1) / width + EPS)
        tl.store(y + place, (away * steep[:, None] * w[None, :] + b[None, :]).to(y.dtype.element_ty), mask=both)
        tl.store(mean + row, middle, mask=row < rows)
        tl.store(slope + row, steep, mask=row < rows)


@triton.jit
def both_sums(one, two, other_one, other_two):
    """Two sums in one pass, as a reduction adds their parts."""
    return one + other_one, two + other_two


@triton.jit
def backward_kernel(
    grad, total, weight, mean, slope, kept, x_grad, total_grad, sums, rows, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, SCALE: tl.constexpr, STAGES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Gradients of x and the residual; of weight, bias and x_bias those of each program's rows [3, programs, width].

    TILES of TILE rows share the bytes of eight rows.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide = tl.full((), 0, tl.int64) + width
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    of_x = tl.zeros([BLOCK], tl.float32)
    for tile in tl.range(program, tl.cdiv(rows, TILE), programs, num_stages=STAGES):
        row = tile * TILE + tl.arange(0, TILE)
        both = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * wide + column[None, :]
        flow = tl.load(grad + place, mask=both, other=0.0).to(tl.float32)
        value = tl.load(total + place, mask=both, other=0.0).to(tl.float32)
        steep = tl.load(slope + row, mask=row < rows, other=0.0)[:, None]
        middle = tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
        normal = (value - middle) * steep
        of_weight += tl.sum(flow * normal, 0)
        of_bias += tl.sum(flow, 0)
        flow *= w[None, :]
        along, level = tl.reduce((flow * normal, flow), 1, both_sums)
        back = (flow - normal * (along / width)[:, None] - (level / width)[:, None]) * steep
        tl.store(total_grad + place, back.to(total_grad.dtype.element_ty), mask=both)
        if DROPS:
            bits = tl.load(kept + (tile // TILES) * wide + column, mask=inside, other=0).to(tl.int32)
            back = tl.where(kept_of(bits, (tile % TILES) * TILE + tl.arange(0, TILE)), back * SCALE, 0.0)
            tl.store(x_grad + place, back.to(x_grad.dtype.element_ty), mask=both)
        of_x += tl.sum(back, 0)
    place = program * width + column
    tl.store(sums + place, of_weight, mask=inside)
    tl.store(sums + programs * width + place, of_bias, mask=inside)
    tl.store(sums + 2 * programs * width + place, of_x, mask=inside)
