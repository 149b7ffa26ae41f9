"""Boxes are (left, top, right, bottom) in pixels of the canvas, float32, in the last dimension."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_GROWTH = math.log(1000 / 16)
"""A predicted size is at most e to this times its reference: what a network says before it has learnt is bounded."""

Weights = tuple[float, float, float, float]


def iou(first: Tensor, second: Tensor) -> Tensor:
    """[..., N, M]: intersection over union of [..., N, 4] and [..., M, 4]; 0 where both are empty."""
    a, b = first[..., :, None, :], second[..., None, :, :]
    width = (torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])).clamp_(min=0)
    height = (torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])).clamp_(min=0)
    shared = width.mul_(height)
    union = area(a) + area(b) - shared
    return torch.where(union > 0, shared / union, 0.0)


def area(boxes: Tensor) -> Tensor:
    """[...]."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def encode(references: Tensor, boxes: Tensor, weights: Weights) -> Tensor:
    """Offsets that lead from `references` to `boxes`: shifts in widths and heights, logarithms of growth, weighted.

    An empty reference, which only fills a shape, gives offsets that are finite.
    """
    x, y, width, height = _centred(references)
    to_x, to_y, to_width, to_height = _centred(boxes)
    width, height = width.clamp(min=1e-3), height.clamp(min=1e-3)
    growth = [(to_width.clamp(min=1e-3) / width).log(), (to_height.clamp(min=1e-3) / height).log()]
    offsets = [(to_x - x) / width, (to_y - y) / height, *growth]
    return torch.stack([offset * weight for offset, weight in zip(offsets, weights)], -1)


def decode(references: Tensor, offsets: Tensor, weights: Weights) -> Tensor:
    """The boxes that `offsets` lead to."""
    x, y, width, height = _centred(references)
    right, down, wider, higher = (offset / weight for offset, weight in zip(offsets.unbind(-1), weights))
    x, y = x + right * width, y + down * height
    width = width * wider.clamp(max=LARGEST_GROWTH).exp()
    height = height * higher.clamp(max=LARGEST_GROWTH).exp()
    return torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)


def clip(boxes: Tensor, sizes: Tensor) -> Tensor:
    """`boxes` [B, ..., 4] cut at the borders of their images; `sizes` [B, 2] is (height, width)."""
    height, width = (sizes[:, i].view(-1, *[1] * (boxes.dim() - 2)) for i in (0, 1))
    left, top, right, bottom = (edge.clamp(min=0) for edge in boxes.unbind(-1))
    cut = (torch.minimum(left, width), torch.minimum(top, height))
    return torch.stack([*cut, torch.minimum(right, width), torch.minimum(bottom, height)], -1)


def at_least(boxes: Tensor, side: float) -> Tensor:
    """Which boxes are that wide and that high."""
    return (boxes[..., 2] - boxes[..., 0] >= side) & (boxes[..., 3] - boxes[..., 1] >= side)


def _centred(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    left, top, right, bottom = boxes.unbind(-1)
    width, height = right - left, bottom - top
    return left + width / 2, top + height / 2, width, height
