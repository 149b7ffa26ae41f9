"""What is cut out of a photograph: a random part in training, the middle in the evaluation."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

AREA = (0.08, 1.0)
"""Part of the photograph that a training crop covers."""
RATIO = (3 / 4, 4 / 3)
"""Width over height of a training crop."""
TRIES = 10
EVAL_MARGIN = 256 / 224
"""The evaluation scales the shorter side to this many times the crop's."""


class Crop(NamedTuple):
    """A box of a photograph in pixels, and whether it is mirrored."""

    left: float
    top: float
    right: float
    bottom: float
    mirrored: bool


def random_crop(width: int, height: int, random: Random) -> Crop:
    """A part of random area and shape, mirrored every other time; the largest middle one if none fits in ten tries."""
    mirrored = random.random() < 0.5
    for _ in range(TRIES):
        area = width * height * random.uniform(*AREA)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return Crop(left, top, left + w, top + h, mirrored)
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    w, h = min(width, height * ratio), min(height, width / ratio)
    return _middle(width, height, w, h)._replace(mirrored=mirrored)


def middle_crop(width: int, height: int) -> Crop:
    """The middle square that a crop of the scaled photograph shows."""
    side = min(width, height) / EVAL_MARGIN
    return _middle(width, height, side, side)


def _middle(width: int, height: int, w: float, h: float) -> Crop:
    left, top = (width - w) / 2, (height - h) / 2
    return Crop(left, top, left + w, top + h, False)
