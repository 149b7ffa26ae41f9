"""The floating point operations of training on one image, counted from the sizes alone.

Two for each multiply-accumulate of convolutions and linear layers; three passes (forward, and backward for weights and
for inputs) of what is trained, two where no gradient of the input is needed, one of what is frozen. Norms, losses,
suppression and RoIAlign are no work.
"""

from __future__ import annotations

from backbone import EXPANSION, halved
from model import LEVELS, Shape

FORWARD, WITHOUT_INPUT, WHOLE = 1, 2, 3
"""Passes."""


def training_flops(shape: Shape, canvas: tuple[int, int]) -> float:
    """Of one image on the canvas."""
    return 2.0 * (_backbone(shape, canvas) + _pyramid(shape, canvas) + _proposals(shape, canvas) + _head(shape))


def _backbone(shape: Shape, canvas: tuple[int, int]) -> int:
    width, frozen = shape.backbone_width, shape.frozen_stages
    total = _places(canvas, 1) * 49 * 3 * width * (WITHOUT_INPUT if frozen == 0 else FORWARD)
    channels = width
    for stage, blocks in enumerate(shape.backbone_blocks):
        trained = frozen < stage + 2
        first = trained and frozen == stage + 1
        inner, wide = width * 2**stage, width * 2**stage * EXPANSION
        places, before = _places(canvas, stage + 2), _places(canvas, stage + 1 if stage else 2)
        for block in range(blocks):
            passes = WHOLE if trained else FORWARD
            entering = WITHOUT_INPUT if first and not block else passes
            total += (places if block else before) * channels * inner * entering
            total += places * (9 * inner * inner + inner * wide) * passes
            if not block:
                total += places * channels * wide * entering
            channels = wide
    return total


def _pyramid(shape: Shape, canvas: tuple[int, int]) -> int:
    channels, total = shape.pyramid_channels, 0
    for stage, width in enumerate(shape.stage_widths()):
        inner = WHOLE if shape.frozen_stages < stage + 2 else WITHOUT_INPUT
        total += _places(canvas, stage + 2) * channels * (width * inner + 9 * channels * WHOLE)
    return total


def _proposals(shape: Shape, canvas: tuple[int, int]) -> int:
    channels, anchors = shape.pyramid_channels, len(shape.anchor_ratios)
    places = sum(_places(canvas, level + 2) for level in range(LEVELS))
    return places * channels * (9 * channels + 5 * anchors) * WHOLE


def _head(shape: Shape) -> int:
    inputs = shape.pyramid_channels * shape.pool_size**2
    layers = inputs * shape.head_width + shape.head_width**2 + 5 * shape.head_width * shape.num_classes
    return shape.regions_per_image * layers * WHOLE


def _places(canvas: tuple[int, int], halvings: int) -> int:
    return halved(canvas[0], halvings) * halved(canvas[1], halvings)
