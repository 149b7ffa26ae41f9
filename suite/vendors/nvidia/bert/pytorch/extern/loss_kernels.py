"""Kernels of the cross entropy of rows of scores, computed in float32; no score is written down in it."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward_kernel(scores, labels, loss, logs, classes, absent, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """loss = logs - score of the label, 0 where that is `absent`; logs = log(sum(exp(scores))). A program takes a row.

    A label that is no class makes a loss that is no number.
    """
    row = tl.program_id(0).to(tl.int64)
    most = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, classes, BLOCK, num_stages=STAGES):
        place = first + tl.arange(0, BLOCK)
        score = tl.load(scores + row * classes + place, mask=place < classes, other=float("-inf")).to(tl.float32)
        more = tl.maximum(most, score, propagate_nan=tl.PropagateNan.ALL)
        total = total * tl.exp2((most - more) * LOG2_E) + tl.exp2((score - more) * LOG2_E)
        most = more
    highest = tl.max(most, 0)
    log = highest + tl.log2(tl.sum(total * tl.exp2((most - highest) * LOG2_E), 0)) / LOG2_E
    label = tl.load(labels + row)
    known = (label >= 0) & (label < classes)
    said = tl.load(scores + row * classes + label, mask=known, other=float("nan")).to(tl.float32)
    tl.store(loss + row, tl.where(label == absent, 0.0, log - said))
    tl.store(logs + row, log)


@triton.jit
def backward_kernel(grad, scores, labels, logs, score_grad, classes, absent, BLOCK: tl.constexpr):
    """score_grad = (softmax(scores) - 1 at the label) grad. A program takes BLOCK classes of a row."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < classes
    label = tl.load(labels + row)
    flow = tl.where(label == absent, 0.0, tl.load(grad + row))
    score = tl.load(scores + row * classes + place, mask=inside, other=0.0).to(tl.float32)
    share = tl.exp2((score - tl.load(logs + row)) * LOG2_E) - tl.where(place == label, 1.0, 0.0)
    tl.store(score_grad + row * classes + place, (share * flow).to(score_grad.dtype.element_ty), mask=inside)
