"""Kernels of the norm over a sum of three embeddings, and of its dropout: a program takes rows of one position.

So it holds the embedding of that position, and sums its gradient. Dropout is decided and kept as in norm_kernels.
"""

import triton
import triton.language as tl

from extern.norm_kernels import ROWS, both_sums, decisions, kept_of


@triton.jit
def _parameter(pointer, column, inside):
    return tl.load(pointer + column, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def forward_kernel(
    tokens, segments, words, places, kinds, weight, bias, seed, y, mean, slope, kept, rows, count, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, EPS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """y = dropout(norm(words + places + kinds)); kept [groups of eight rows, count, width] one bit a row."""
    position = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    place = _parameter(places + position * width, column, inside)
    one, other = _parameter(kinds, column, inside), _parameter(kinds + width, column, inside)
    w, b = _parameter(weight, column, inside), _parameter(bias, column, inside)
    wide = tl.full((), 0, tl.int64) + width  # of products that would not fit into 32 bits
    wide_count = tl.full((), 0, tl.int64) + count
    for group in tl.range(tl.program_id(1), tl.cdiv(rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        row = group * ROWS + tl.arange(0, ROWS)
        both = (row < rows)[:, None] & inside[None, :]
        at = row[:, None] * wide_count + position
        token = tl.load(tokens + at, mask=row[:, None] < rows, other=0)
        segment = tl.load(segments + at, mask=row[:, None] < rows, other=0).to(tl.float32)
        word = tl.load(words + token * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        value = word + (place + one)[None, :] + segment * (other - one)[None, :]
        middle = tl.sum(value, 1) / width
        away = tl.where(inside[None, :], value - middle[:, None], 0.0)
        steep = tl.rsqrt(tl.sum(away * away, 1) / width + EPS)
        value = away * steep[:, None] * w[None, :] + b[None, :]
        if DROPS:
            unit = group * count + position
            bits = decisions(seed, unit * BLOCK + column, THRESHOLD)
            tl.store(kept + unit * wide + column, bits.to(tl.uint8), mask=inside)
            value = tl.where(kept_of(bits, tl.arange(0, ROWS)), value * SCALE, 0.0)
        tl.store(y + at * width + column[None, :], value.to(y.dtype.element_ty), mask=both)
        tl.store(mean + at, middle[:, None], mask=row[:, None] < rows)
        tl.store(slope + at, steep[:, None], mask=row[:, None] < rows)


@triton.jit
def backward_kernel(
    grad, tokens, segments, words, places, kinds, weight, mean, slope, kept, words_grad, sums, rows, count, width,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, SCALE: tl.constexpr, STAGES: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Adds to words_grad; sums [4, programs of a position, count, width] of what each program's rows make for places,
    for the second of kinds, for weight and for bias. TILES of TILE rows share the bytes of eight rows.
    """
    position = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    place = _parameter(places + position * width, column, inside)
    one, other = _parameter(kinds, column, inside), _parameter(kinds + width, column, inside)
    w = _parameter(weight, column, inside)
    of_place = tl.zeros([BLOCK], tl.float32)
    of_other = tl.zeros([BLOCK], tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    wide = tl.full((), 0, tl.int64) + width
    wide_count = tl.full((), 0, tl.int64) + count
    for tile in tl.range(tl.program_id(1), tl.cdiv(rows, TILE), tl.num_programs(1), num_stages=STAGES):
        row = tile * TILE + tl.arange(0, TILE)
        both = (row < rows)[:, None] & inside[None, :]
        at = row[:, None] * wide_count + position
        token = tl.load(tokens + at, mask=row[:, None] < rows, other=0)
        segment = tl.load(segments + at, mask=row[:, None] < rows, other=0).to(tl.float32)
        word = tl.load(words + token * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        value = word + (place + one)[None, :] + segment * (other - one)[None, :]
        flow = tl.load(grad + at * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        if DROPS:
            unit = (tile // TILES) * count + position
            bits = tl.load(kept + unit * wide + column, mask=inside, other=0).to(tl.int32)
            flow = tl.where(kept_of(bits, (tile % TILES) * TILE + tl.arange(0, TILE)), flow * SCALE, 0.0)
        steep = tl.load(slope + at, mask=row[:, None] < rows, other=0.0)
        normal = (value - tl.load(mean + at, mask=row[:, None] < rows, other=0.0)) * steep
        of_weight += tl.sum(flow * normal, 0)
        of_bias += tl.sum(flow, 0)
        flow *= w[None, :]
        along, level = tl.reduce((flow * normal, flow), 1, both_sums)
        back = (flow - normal * (along / width)[:, None] - (level / width)[:, None]) * steep
        tl.atomic_add(words_grad + token * width + column[None, :], back, mask=both, sem="relaxed")
        of_place += tl.sum(back, 0)
        of_other += tl.sum(segment * back, 0)
    sums += (tl.program_id(1) * count + position) * width + column
    step = tl.num_programs(1) * count * width
    tl.store(sums, of_place, mask=inside)
    tl.store(sums + step, of_other, mask=inside)
    tl.store(sums + 2 * step, of_weight, mask=inside)
    tl.store(sums + 3 * step, of_bias, mask=inside)
