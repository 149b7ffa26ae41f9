"""Anchors: the boxes that the region proposal network starts from, a few at every place of every level."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def shapes(size: float, ratios: Sequence[float]) -> Tensor:
    """[A, 4]: one box around the origin for each ratio of height to width, all of area size x size, in whole pixels."""
    height = torch.tensor(ratios).sqrt()
    half = torch.stack([size / height, size * height], 1) / 2
    return torch.cat([-half, half], 1).round()


def grid(shapes: Tensor, height: int, width: int, canvas: tuple[int, int]) -> Tensor:
    """[height * width * A, 4]: the anchors of a level, row by row, the shapes of a place side by side."""
    down, right = canvas[0] // height, canvas[1] // width
    y = torch.arange(height, device=shapes.device, dtype=torch.float32) * down
    x = torch.arange(width, device=shapes.device, dtype=torch.float32) * right
    place = torch.stack([x.expand(height, -1), y[:, None].expand(-1, width)] * 2, -1)
    return (place[:, :, None] + shapes).reshape(-1, 4)
