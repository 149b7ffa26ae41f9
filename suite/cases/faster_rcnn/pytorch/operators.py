"""Non-maximum suppression and RoIAlign for a whole batch, in shapes that do not depend on what is found.

Both are slots. The plain ones below never make the host wait; torchvision.py holds the same through its kernels.
"""

from __future__ import annotations

import torch
from boxes import area, iou
from torch import Tensor
from torch.nn import functional as F

FINEST_STRIDE = 4
"""Pixels between two places of the first level of the pyramid; each next level doubles it."""
CANONICAL_LEVEL = 2
"""Level, counted from the finest, that a region of the canonical size is cut from."""
SAMPLES = 2
"""Points along each side of a bin whose mean is the bin's value."""


def suppress(boxes: Tensor, real: Tensor, threshold: float, rounds: int = 0, labels: Tensor | None = None) -> Tensor:
    """[B, L, K]: which of each group's K boxes [B, L, K, 4] survive greedy suppression; best first.

    A box falls to a survivor before it that overlaps it by more than `threshold` (and has its label). Boxes that are
    not `real` neither survive nor suppress. "Falls to a survivor" is solved for all boxes at once, by repetition from
    "all survive": each round settles every box whose rivals are settled. `rounds` 0 repeats until nothing changes, for
    which the host looks at each round. An odd number of rounds never waits, and what is still open then falls: the
    result is a part of the exact one, and the exact one where chains of rivals are shorter than that.
    """
    # One image at a time: the pairs of a batch would not fit, and the kernels are long enough as they are.
    labels = [None] * len(boxes) if labels is None else labels
    rivals = torch.stack([_rivals(*group, threshold, _product_dtype(boxes)) for group in zip(boxes, labels)])
    kept = real
    for _ in range(rounds or boxes.shape[-2] + 1):
        falls = torch.matmul(kept[..., None, :].to(rivals.dtype), rivals)[..., 0, :] > 0
        before, kept = kept, real & ~falls
        if not rounds and torch.equal(before, kept):
            break
    return kept


def _rivals(boxes: Tensor, labels: Tensor | None, threshold: float, dtype: torch.dtype) -> Tensor:
    """[L, K, K]: 1 where the box of the row, if it survives, suppresses the box of the column."""
    over = iou(boxes, boxes) > threshold
    if labels is not None:
        over &= labels[:, :, None] == labels[:, None, :]
    return over.triu_(1).to(dtype)


def _product_dtype(like: Tensor) -> torch.dtype:
    """The dtype in which autocast would multiply anyway: sums of ones are compared with 0 alone, so any will do."""
    kind = like.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else torch.float32


def pool(pyramid: list[Tensor], boxes: Tensor, size: int, canonical: float) -> Tensor:
    """[B * R, size * size * C]: RoIAlign of `boxes` [B, R, 4], each from the level of its size, bins row by row.

    Every bin is a weighted sum of sixteen places of the pyramid, so all regions of all levels and images are one
    `embedding_bag` over the pyramid as a table of its places.
    """
    level = levels(boxes, canonical, len(pyramid)).flatten()
    flat = boxes.flatten(0, 1) / (FINEST_STRIDE * 2.0**level)[:, None]
    heights, widths, starts = _layout(pyramid, level)
    y, y_weight = _along(flat[:, 1], flat[:, 3], heights, size)
    x, x_weight = _along(flat[:, 0], flat[:, 2], widths, size)
    table = torch.cat([features.permute(0, 2, 3, 1).flatten(1, 2) for features in pyramid], 1)
    image = torch.arange(len(boxes), device=boxes.device).repeat_interleave(boxes.shape[1])
    first = image * table.shape[1] + starts
    places = first[:, None, None, None, None] + y[:, :, None, :, None] * widths[:, None, None, None, None]
    places = (places + x[:, None, :, None, :]).view(-1, 4 * SAMPLES**2)
    weights = (y_weight[:, :, None, :, None] * x_weight[:, None, :, None, :]).view(places.shape)
    bins = F.embedding_bag(places, table.flatten(0, 1), per_sample_weights=weights.to(table.dtype), mode="sum")
    return bins.view(len(flat), -1)


def levels(boxes: Tensor, canonical: float, count: int) -> Tensor:
    """[...]: the level of the pyramid for each box, by the square root of its area."""
    side = area(boxes).clamp(min=0).sqrt()
    level = (CANONICAL_LEVEL + (side / canonical).log2() + 1e-6).floor()
    return level.clamp(0, count - 1).long()


def _layout(pyramid: list[Tensor], level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(height, width, first row in an image's part of the table) of the level of each region."""
    numbers, rows = [], 0
    for features in pyramid:
        height, width = features.shape[-2:]
        numbers.append((height, width, rows))
        rows += height * width
    # Filled on the device: a tensor made from a list would be copied there, and the host would wait.
    table = torch.stack([torch.stack([level.new_full((), n) for n in column]) for column in zip(*numbers)])
    height, width, first = table[:, level].unbind(0)
    return height, width, first


def _along(low: Tensor, high: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """One axis: (places [N, size, 4], weights [N, size, 4]) of each bin's samples and their two neighbours."""
    step = (high - low).clamp(min=1.0)[:, None] / (size * SAMPLES)
    at = low[:, None] + step * (torch.arange(size * SAMPLES, device=low.device) + 0.5)
    last = length[:, None] - 1.0
    inside = (at >= -1) & (at <= last + 1)
    below = torch.minimum(at.clamp(min=0).floor(), last)
    part = torch.where(below >= last, 0.0, at.clamp(min=0) - below)
    places = torch.stack([below, torch.minimum(below + 1, last)], -1).long()
    weights = torch.stack([1 - part, part], -1) * inside[..., None] / SAMPLES
    return places.view(len(low), size, -1), weights.view(len(low), size, -1)
