"""Kernels of attention within rows so short that the scores of a head lie in one program.

Keys and values, and queries where all tokens ask, lie beside each other as the product before made them, and so do
their gradients: nothing is brought from one place to another. A program takes one head of one row. The forward pass
keeps of its scores one number a query; the backward pass computes them and what dropout decided once more.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
ROUNDS = tl.constexpr(7)
"""Of Philox: as many as pass BigCrush (Salmon et al., SC 2011, table 2)."""
KEYS = tl.constexpr(64)
"""A call of Philox decides for every eighth key of as many."""


@triton.jit
def _kept(seed, query, BLOCK: tl.constexpr, THRESHOLD: tl.constexpr):
    """[queries, BLOCK] where 16 random bits are not below THRESHOLD; `query` counts those of all units.

    One call decides for eight keys, of which a thread holds all or none. Every place asks for a call of its own, and
    the compiler finds that eight of them are one: it does as long as the numbers of the keys serve nothing else, hence
    their range.
    """
    key = tl.arange(BLOCK, 2 * BLOCK)[None, :]
    call = (key << 29) + ((key // KEYS % 2) << 28) + query[:, None]
    one, two, three, four = tl.randint4x(tl.load(seed), call, ROUNDS)
    turn = key // 8 % 8
    word = tl.where(turn < 2, one, tl.where(turn < 4, two, tl.where(turn < 6, three, four)))
    least: tl.constexpr = THRESHOLD << 16
    return tl.where(turn % 2 == 0, word << 16, word) >= least


@triton.jit
def _places(row, head, token, tokens, SIZE: tl.constexpr):
    """Token of all rows [tokens, 1], column of a width of all heads [1, SIZE], and which tokens are in this row."""
    column = head * SIZE + tl.arange(0, SIZE)[None, :]
    wide = tl.full((), 0, tl.int64) + row  # of products that would not fit into 32 bits
    return (wide * tokens + token)[:, None], column, (token < tokens)[:, None]


@triton.jit
def _scores(
    query, key, bias, row, tokens, BLOCK: tl.constexpr, STEEP: tl.constexpr, BIASED: tl.constexpr, FULL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """[queries, BLOCK]; what is left to multiply them by is `_steep`."""
    score = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    place = tl.arange(0, BLOCK)
    if BIASED:
        added = tl.load(bias + row * tokens + place, mask=place < tokens, other=float("-inf"))
        score = score * STEEP + added.to(tl.float32)[None, :]
    elif not FULL:
        score = tl.where(place[None, :] < tokens, score, float("-inf"))
    return score


@triton.constexpr_function
def _steep(STEEP, BIASED):
    """Makes of scores exponents of two."""
    return LOG2_E if BIASED else STEEP * LOG2_E


@triton.jit
def forward_kernel(
    query, packed, bias, seed, context, total, tokens, asked, heads, query_columns, columns,
    BLOCK: tl.constexpr, ASKED: tl.constexpr, SIZE: tl.constexpr, STEEP: tl.constexpr, BIASED: tl.constexpr,
    FULL: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr,
):  # fmt: skip
    """context = dropout(softmax(query key^T STEEP + bias)) value; total [units, ASKED] the logarithms of the sums.

    Of `asked` queries a row, in rows of query_columns; packed, in rows of as many columns as are given, ends with keys
    and values of `tokens`. A program takes QUERIES of one head of one row.
    """
    unit = tl.program_id(0) // (ASKED // QUERIES)
    row, head = unit // heads, unit % heads
    asking = tl.program_id(0) % (ASKED // QUERIES) * QUERIES + tl.arange(0, QUERIES)
    width = heads * SIZE
    token, column, inside = _places(row, head, tl.arange(0, BLOCK), tokens, SIZE)
    place = packed + token * columns + column + (columns - 2 * width)
    key = tl.load(place, mask=inside, other=0.0)
    value = tl.load(place + width, mask=inside, other=0.0)
    token, column, inside = _places(row, head, asking, asked, SIZE)
    asks = tl.load(query + token * query_columns + column, mask=inside, other=0.0)
    score = _scores(asks, key, bias, row, tokens, BLOCK, STEEP, BIASED, FULL, PRECISION)
    steep: tl.constexpr = _steep(STEEP, BIASED)
    most = tl.max(score, 1) * steep
    share = tl.exp2(score * steep - most[:, None])
    all_shares = tl.sum(share, 1)
    tl.store(total + unit * ASKED + asking, most + tl.log2(all_shares))
    if DROPS:
        share = tl.where(_kept(seed, unit * ASKED + asking, BLOCK, THRESHOLD), share, 0.0)
    y = tl.dot(share.to(value.dtype), value, input_precision=PRECISION) * (SCALE / all_shares)[:, None]
    tl.store(context + token * width + column, y.to(context.dtype.element_ty), mask=inside)


@triton.jit
def _half(value, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Sums of pairs of rows that one thread holds: a sum of all rows would make every head wait for all threads."""
    return tl.sum(tl.reshape(value, (ROWS // 16, 2, 8, SIZE)), 1)


@triton.jit
def backward_kernel(
    grad, query, packed, bias, seed, total, query_grad, packed_grad, sums, rows, tokens, asked, heads, query_columns,
    columns, BLOCK: tl.constexpr, ASKED: tl.constexpr, SIZE: tl.constexpr, STEEP: tl.constexpr, BIASED: tl.constexpr,
    FULL: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys and values; sums [programs of a head, 3, heads, SIZE] of those that a program makes.

    A program takes one head of some rows; there are as many for each head. The sum over keys is 0: whatever all keys of
    a query are moved by, its shares are the same. Unless APART, every token asks, and lies where its key and value do.
    """
    head = tl.program_id(0) % heads
    width = heads * SIZE
    steep: tl.constexpr = _steep(STEEP, BIASED)
    query_sum = tl.zeros([ASKED // 16, 8, SIZE], tl.float32)
    value_sum = tl.zeros([BLOCK // 16, 8, SIZE], tl.float32)
    for row in tl.range(tl.program_id(0) // heads, rows, tl.num_programs(0) // heads, num_stages=STAGES):
        unit = row * heads + head
        token, column, inside = _places(row, head, tl.arange(0, BLOCK), tokens, SIZE)
        place = token * columns + column + (columns - 2 * width)
        asking, asks = token, inside
        asking_place = place - width
        if APART:
            asking, _, asks = _places(row, head, tl.arange(0, ASKED), asked, SIZE)
            asking_place = asking * query_columns + column
        wanted = tl.load(query + asking_place, mask=asks, other=0.0)
        key = tl.load(packed + place, mask=inside, other=0.0)
        value = tl.load(packed + place + width, mask=inside, other=0.0)
        flow = tl.load(grad + asking * width + column, mask=asks, other=0.0)
        logs = tl.load(total + unit * ASKED + tl.arange(0, ASKED))
        score = _scores(wanted, key, bias, row, tokens, BLOCK, STEEP, BIASED, FULL, PRECISION)
        share = tl.exp2(score * steep - logs[:, None])
        if DROPS:  # what is dropped is negative from here on: one number says both
            share = tl.where(_kept(seed, unit * ASKED + tl.arange(0, ASKED), BLOCK, THRESHOLD), share, -share)
        given = tl.maximum(share, 0.0).to(flow.dtype)
        value_grad = tl.dot(tl.trans(given), flow, input_precision=PRECISION) * SCALE
        tl.store(packed_grad + place + width, value_grad.to(packed_grad.dtype.element_ty), mask=inside)
        value_sum += _half(value_grad, BLOCK, SIZE)
        back = tl.where(share > 0.0, tl.dot(flow, tl.trans(value), input_precision=PRECISION), 0.0)
        share = tl.abs(share)
        # The scale of both is left to the products' results, of which there are fewer.
        back = (share * (back - tl.sum(share * back, 1)[:, None])).to(wanted.dtype)
        moved = tl.dot(back, key, input_precision=PRECISION) * (STEEP * SCALE)
        # Not one pointer for both: a compiler would take a tensor that is given twice for two.
        if APART:
            tl.store(query_grad + asking_place, moved.to(query_grad.dtype.element_ty), mask=asks)
        else:
            tl.store(packed_grad + asking_place, moved.to(packed_grad.dtype.element_ty), mask=asks)
        query_sum += _half(moved, ASKED, SIZE)
        key_grad = tl.dot(tl.trans(back), wanted, input_precision=PRECISION) * (STEEP * SCALE)
        tl.store(packed_grad + place, key_grad.to(packed_grad.dtype.element_ty), mask=inside)
    sums += tl.program_id(0) // heads * (3 * width) + head * SIZE + tl.arange(0, SIZE)
    tl.store(sums, tl.sum(tl.sum(query_sum, 0), 0))
    tl.store(sums + width, tl.zeros([SIZE], tl.float32))
    tl.store(sums + 2 * width, tl.sum(tl.sum(value_sum, 0), 0))
