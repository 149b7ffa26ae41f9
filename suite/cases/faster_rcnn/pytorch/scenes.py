"""The data of the preset `mini`: scenes of one to three real handwritten digits on a cloudy ground.

Which digits a scene shows, where and how large, is drawn once, the same for every run; digits of the held-out scenes
occur in no training scene.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from data import Picture, Place, Truth, global_batches, own_part, shuffled

SIDE = 64
HELD_OUT_DIGITS = 500
SMALLEST, LARGEST = 16, 28
"""Side of a digit in pixels."""
MOST = 3
TRIES = 20
CLOUD = 0.25
"""Brightest ground."""
INK = 0.2
"""What is brighter belongs to the digit: its box is the tightest around that."""
TRAIN_SEED, HELD_OUT_SEED = 0, 1


class Scene:
    """One image with its boxes."""

    def __init__(self, random: np.random.RandomState, images: np.ndarray, labels: np.ndarray) -> None:
        # RandomState: its numbers are the same in every version of NumPy, and so is the data.
        ground = _enlarged(random.rand(8, 8) * CLOUD, SIDE)
        boxes, found, taken = [], [], []
        for _ in range(random.randint(1, MOST + 1)):
            place = _free_place(random, taken)
            if place is None:
                continue
            taken.append(place)
            left, top, right, bottom = place
            digit = random.randint(len(images))
            drawn = _enlarged(images[digit], right - left)
            patch = ground[top:bottom, left:right]
            np.maximum(patch, drawn, out=patch)
            rows, columns = np.nonzero(drawn > INK)
            boxes.append((left + columns.min(), top + rows.min(), left + columns.max() + 1, top + rows.max() + 1))
            found.append(labels[digit] + 1)
        self.places = taken
        self.pixels = np.repeat(np.rint(255 * ground).astype(np.uint8)[..., None], 3, 2)
        self.boxes = np.array(boxes, np.float32)
        self.labels = np.array(found, np.int64)


class Scenes:
    """Training and held-out scenes as the case asks for them."""

    def __init__(self, path: Path, *, train: int, held_out: int, seed: int, place: Place) -> None:
        (images, labels), (other_images, other_labels) = read_digits(path)
        self.seed, self.place = seed, place
        random = np.random.RandomState(TRAIN_SEED)
        self.train = [Scene(random, images, labels) for _ in range(train)]
        random = np.random.RandomState(HELD_OUT_SEED)
        self._hold_out([Scene(random, other_images, other_labels) for _ in range(held_out)])

    def hold_out_training(self) -> None:
        """Evaluate scenes of the training from now on, as many as were held out (a run broken on purpose)."""
        self._hold_out(self.train[: len(self.held_out)])

    def _hold_out(self, scenes: list[Scene]) -> None:
        self.held_out = scenes
        everywhere = [(scene.boxes, scene.labels) for scene in scenes]
        self.truths = [Truth(boxes, labels, np.zeros(len(labels), bool)) for boxes, labels in everywhere]

    def question(self, index: int) -> tuple[object, ...]:
        """What a held-out scene is known by: the places of its digits and their classes."""
        return self.held_out[index].places, self.held_out[index].labels

    def batches(self, epoch: int, size: int, skip: int) -> Iterator[list[Picture]]:
        """This rank's pictures of each global batch of `size` images, without the first `skip`."""
        order, keys = shuffled(len(self.train), self.seed, epoch)
        groups = np.zeros(len(self.train), int)
        for number, batch in enumerate(global_batches(order, size, groups)):
            if number >= skip:
                mine = own_part(batch, self.place)
                yield [self._picture(self.train[index], int(keys[index])) for index in mine]

    def eval_batches(self, size: int) -> Iterator[tuple[list[int], list[float], list[Picture]]]:
        """(indices, factors from the image to the canvas, pictures) of this rank's share, each image once."""
        mine = list(range(self.place.rank, len(self.held_out), self.place.world_size))
        for first in range(0, len(mine), size):
            part = mine[first : first + size]
            yield part, [1.0] * len(part), [self._picture(self.held_out[index], 0) for index in part]

    @staticmethod
    def _picture(scene: Scene, key: int) -> Picture:
        return Picture(scene.pixels, scene.boxes, scene.labels, key)


def read_digits(path: Path) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images [n, 8, 8] from 0 to 1, labels) for training, and of the held-out digits; disjoint."""
    with np.load(path) as file:
        images, labels = file["images"] / 16.0, file["labels"].astype(np.int64)
    order = np.random.RandomState(0).permutation(len(labels))
    train, held_out = order[:-HELD_OUT_DIGITS], order[-HELD_OUT_DIGITS:]
    return (images[train], labels[train]), (images[held_out], labels[held_out])


def _free_place(random: np.random.RandomState, taken: list[tuple[int, ...]]) -> tuple[int, int, int, int] | None:
    for _ in range(TRIES):
        side = random.randint(SMALLEST, LARGEST + 1)
        top, left = random.randint(0, SIDE - side + 1, 2)
        place = (int(left), int(top), int(left + side), int(top + side))
        if all(_apart(place, other) for other in taken):
            return place
    return None


def _apart(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return min(a[2], b[2]) <= max(a[0], b[0]) or min(a[3], b[3]) <= max(a[1], b[1])


def _enlarged(image: np.ndarray, side: int) -> np.ndarray:
    """`image` [8, 8] with linear interpolation at [side, side]."""
    weights = _interpolation(image.shape[0], side)
    return weights @ image @ weights.T


@cache
def _interpolation(count: int, side: int) -> np.ndarray:
    at = np.clip((np.arange(side) + 0.5) * count / side - 0.5, 0, count - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(count)))
