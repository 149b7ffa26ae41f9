"""Which anchors and regions are learnt from, and as what: by overlap with the true boxes, and by lot.

The lots depend on the image's key alone: not on the rank that has it, nor on what was drawn before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from boxes import iou
from torch import Tensor

WORD = 0xFFFFFFFF


class Matched(NamedTuple):
    """Candidates of a batch [B, N] held against their images' true boxes."""

    which: Tensor
    """The true box that overlaps the candidate most."""
    positive: Tensor
    negative: Tensor


class Drawn(NamedTuple):
    """Candidates that were drawn [B, count]."""

    index: Tensor
    real: Tensor
    """False where there were not enough, and a candidate only fills the shape."""


def match(candidates: Tensor, boxes: Tensor, real: Tensor, low: float, high: float, rescue: bool) -> Matched:
    """Positive from an overlap of `high` on, negative below `low`. `rescue`: also positive is what no other candidate
    surpasses for some true box, so that every box is learnt.

    `candidates` [B, N, 4], or [N, 4] for all images; `boxes` [B, G, 4], of which `real` [B, G] are true ones.
    """
    every = candidates if candidates.dim() == 3 else candidates.expand(len(boxes), -1, -1)
    # One image at a time: all pairs of a batch are gigabytes.
    rows = [_match(*image, low, high, rescue) for image in zip(every, boxes, real)]
    return Matched(*(torch.stack(column) for column in zip(*rows)))


def _match(candidates: Tensor, boxes: Tensor, real: Tensor, low: float, high: float, rescue: bool) -> Matched:
    overlap = torch.where(real, iou(candidates, boxes), -1.0)
    best, which = overlap.max(1)
    positive, negative = best >= high, best < low
    if rescue:
        best_of_box = overlap.amax(0)
        rescued = ((overlap == best_of_box) & (best_of_box > 0)).any(1)
        positive, negative = positive | rescued, negative & ~rescued
    return Matched(which, positive, negative)


def lots(keys: Tensor, count: int) -> Tensor:
    """[B, count] numbers in [0, 1], a hash of (key, place)."""
    x = (keys[:, None] + 0x9E3779B1 * torch.arange(1, count + 1, device=keys.device)) & WORD
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & WORD
    return (x ^ (x >> 16)).float() / WORD


def draw(positive: Tensor, negative: Tensor, keys: Tensor, count: int, most_positive: int) -> Drawn:
    """`count` of the candidates [B, N] by lot: at most `most_positive` positive ones, first, then negative ones."""
    lot = lots(keys, positive.shape[1])
    ranked, index = torch.where(positive, lot, -1.0).topk(min(most_positive, positive.shape[1]))
    chosen = torch.zeros_like(positive).scatter(1, index, ranked >= 0)
    order = torch.where(chosen, 2.0, torch.where(negative, lot, -1.0))
    ranked, index = order.topk(min(count, order.shape[1]))
    return Drawn(index, ranked >= 0)
