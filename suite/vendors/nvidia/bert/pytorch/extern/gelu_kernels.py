"""Kernels of GELU over a product and its bias; the backward pass sums the gradient of the bias on its way."""

import triton
import triton.language as tl


@triton.jit
def _share_and_density(value):
    """The normal distribution's share below `value`, to 1e-7, and its density times sqrt(2 pi).

    Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; its exponential is the density itself.
    """
    density = tl.exp2(value * value * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(value))
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail *= density
    return tl.where(value > 0.0, 1.0 - tail, tail), density


@triton.jit
def forward_kernel(x, bias, y, rows, width, chunk, COLS: tl.constexpr):
    """y = gelu(x + bias): a program takes COLS columns of `chunk` rows."""
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = column < width
    added = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(1).to(tl.int64) * chunk
    wide = tl.full((), 0, tl.int64) + width  # of products that would not fit into 32 bits
    for row in range(first, tl.minimum(first + chunk, rows)):
        place = row * wide + column
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added
        share, _ = _share_and_density(value)
        tl.store(y + place, (value * share).to(y.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(grad, x, bias, x_grad, sums, rows, width, chunk, COLS: tl.constexpr, STAGES: tl.constexpr):
    """Gradient of x, and its sum over the rows of each chunk [chunks, width]."""
    part = tl.program_id(1)
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = column < width
    added = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([COLS], tl.float32)
    first = part.to(tl.int64) * chunk
    wide = tl.full((), 0, tl.int64) + width
    for row in tl.range(first, tl.minimum(first + chunk, rows), num_stages=STAGES):
        place = row * wide + column
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added
        share, density = _share_and_density(value)
        back = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        back *= share + value * density * 0.3989422804014327
        total += back
        tl.store(x_grad + place, back.to(x_grad.dtype.element_ty), mask=inside)
    tl.store(sums + part * width + column, total, mask=inside)
