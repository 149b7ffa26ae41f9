"""Batches: what both data sets of this case have in common. Every image lies on a canvas of one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Batch = dict[str, Tensor]
"""`images` [B, H, W, 3] in bytes, `sizes` [B, 2] (height, width that are real), `boxes` [B, G, 4], `labels` [B, G]
(0: no box), `keys` [B] (for the lots of training)."""

GREY = (124, 116, 104)
"""Fills the canvas beside an image: ImageNet's mean colour, which the network sees as 0."""
LOT = 2**31
"""Keys are below it."""
RING = 4
"""Random batches of a synthetic run: 200 MB at full size, which no cache keeps until their turn comes again."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


class Picture(NamedTuple):
    """An image as trained on."""

    pixels: np.ndarray
    """[h, w, 3] in bytes, no larger than the canvas."""
    boxes: np.ndarray
    """[n, 4] in pixels of the canvas."""
    labels: np.ndarray
    """[n], from 1."""
    key: int


class Truth(NamedTuple):
    """What is really in an image of the evaluation, in its own pixels."""

    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray
    """[n] bool: a region of many, in which detections count neither for nor against."""


class Found(NamedTuple):
    """What was found in one image of the evaluation, in its own pixels."""

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


def pack(pictures: Sequence[Picture], canvas: tuple[int, int], max_boxes: int) -> Batch:
    """One batch. Of more than `max_boxes` boxes the first ones stay."""
    count = len(pictures)
    images = np.empty((count, *canvas, 3), np.uint8)
    boxes = np.zeros((count, max_boxes, 4), np.float32)
    labels = np.zeros((count, max_boxes), np.int64)
    for row, picture in enumerate(pictures):
        height, width = picture.pixels.shape[:2]
        images[row, :height, :width] = picture.pixels
        images[row, height:] = GREY
        images[row, :height, width:] = GREY
        n = min(max_boxes, len(picture.labels))
        boxes[row, :n], labels[row, :n] = picture.boxes[:n], picture.labels[:n]
    arrays = {
        "images": images,
        "sizes": np.array([picture.pixels.shape[:2] for picture in pictures], np.float32),
        "boxes": boxes,
        "labels": labels,
        "keys": np.array([picture.key for picture in pictures], np.int64),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def shuffled(count: int, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """(order, key of each image): they depend on the seed and the epoch alone."""
    random = np.random.default_rng((seed, epoch))
    return random.permutation(count), random.integers(LOT, size=count)


def global_batches(order: Sequence[int], size: int, groups: np.ndarray) -> Iterator[list[int]]:
    """`order` cut into batches of one group each (upright images, wide ones), as they fill up.

    What is left of a group at the end of an epoch is left out, on all ranks alike.
    """
    open_batches: dict[int, list[int]] = {}
    for index in order:
        batch = open_batches.setdefault(int(groups[index]), [])
        batch.append(int(index))
        if len(batch) == size:
            yield open_batches.pop(int(groups[index]))


def own_part(batch: Sequence[int], place: Place) -> Sequence[int]:
    """This rank's equal part of a global batch: the k-th global batch is the same set whatever the number of ranks."""
    size = len(batch) // place.world_size
    return batch[place.rank * size : (place.rank + 1) * size]


def synthetic_batches(
    canvas: tuple[int, int], max_boxes: int, num_classes: int, *, seed: int, batch_size: int, place: Place
) -> Iterator[Batch]:
    """Endless batches of random colours that fill the canvas, with 1 to 14 random boxes (COCO's mean is 7).

    RING of them in turn: making the bytes of each anew would take longer than a step.
    """
    random = np.random.default_rng((seed, place.rank))
    ring = [_random_batch(random, canvas, max_boxes, num_classes, batch_size) for _ in range(RING)]
    while True:
        yield from ring


def _random_batch(
    random: np.random.Generator, canvas: tuple[int, int], max_boxes: int, num_classes: int, size: int
) -> Batch:
    extent = np.array(canvas[::-1], np.float64)
    sides = random.uniform(0.04, 0.5, (size, max_boxes, 2)) * extent
    corner = random.random((size, max_boxes, 2)) * (extent - sides)
    labels = random.integers(1, num_classes, (size, max_boxes))
    real = np.arange(max_boxes) < random.integers(1, 15, (size, 1))
    arrays = {
        "images": random.integers(0, 256, (size, *canvas, 3), dtype=np.uint8),
        "sizes": np.tile(np.array(canvas, np.float32), (size, 1)),
        "boxes": np.where(real[..., None], np.concatenate([corner, corner + sides], -1), 0).astype(np.float32),
        "labels": np.where(real, labels, 0),
        "keys": random.integers(LOT, size=size),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def shuffle_labels(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with the labels of its boxes dealt out among them."""
    labels = batch["labels"].clone()
    present = labels > 0
    real = labels[present]
    labels[present] = real[torch.randperm(len(real), generator=generator)]
    return {**batch, "labels": labels}
