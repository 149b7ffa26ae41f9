"""What is taken of a video: some of its frames, and a box of each, enlarged or reduced to one size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHORT_SIDE = (256, 320)
"""A training crop is cut out of a frame whose short side was scaled to one of these sizes, for crops of CROP."""
CROP = 224


class Box(NamedTuple):
    """A part of a frame, in its pixels, and whether it is mirrored."""

    top: float
    left: float
    height: float
    width: float
    mirrored: bool = False


def random_box(height: int, width: int, random: np.random.Generator) -> Box:
    """A square of 70 to 88 % of the short side somewhere in the frame, mirrored every other time."""
    side = min(height, width) * CROP / random.integers(SHORT_SIDE[0], SHORT_SIDE[1], endpoint=True)
    top, left = random.uniform(0, height - side), random.uniform(0, width - side)
    return Box(top, left, side, side, bool(random.random() < 0.5))


def whole_box(height: int, width: int) -> Box:
    """All of the frame; a square of it changes its proportions, as the guide's evaluation does."""
    return Box(0, 0, height, width)


def span(count: int, fps: float, seconds: float) -> int:
    """How many of a video's `count` frames last `seconds`: at least one, at most all."""
    return min(count, max(1, round(seconds * fps)))


def spread(first: int, length: int, frames: int) -> np.ndarray:
    """`frames` numbers evenly spread from `first` over `length` frames; some repeat where there are fewer."""
    return first + np.linspace(0, length - 1, frames).astype(np.int64)


def cut(frames: np.ndarray, box: Box, size: int) -> np.ndarray:
    """`box` of every frame [T, H, W, C] as [T, size, size, C], bilinear, in bytes."""
    _, height, width, _ = frames.shape
    rows = _blend(frames, box.top, box.height, height, size, axis=1)
    seen = _blend(rows, box.left, box.width, width, size, axis=2)
    if box.mirrored:
        seen = seen[:, :, ::-1]
    return np.rint(seen).astype(np.uint8)


def _blend(x: np.ndarray, start: float, length: float, limit: int, size: int, axis: int) -> np.ndarray:
    """`size` places of an axis, each a mean of two neighbours."""
    at = np.clip(start + (np.arange(size) + 0.5) * length / size - 0.5, 0, limit - 1)
    low = np.minimum(at.astype(np.int64), max(0, limit - 2))
    high = np.minimum(low + 1, limit - 1)
    shape = [1] * x.ndim
    shape[axis] = size
    share = (at - low).astype(np.float32).reshape(shape)
    near, far = x.take(low, axis).astype(np.float32), x.take(high, axis)
    return near + share * (far - near)
