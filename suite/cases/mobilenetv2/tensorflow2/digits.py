"""The data of mini: 1,797 handwritten digits of 8 x 8 pixels, enlarged, and in training turned, shifted and resized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from data import Batch, Place, shards, shuffled

from suite.drivers.asked import Ask, unheard

HELD_OUT = 500
SPLIT_SEED = 0
"""The split is the same for every seed of a run."""
WHITE = 16
"""The largest value of a pixel."""
TURN, RESIZE, SHIFT = 0.175, 0.125, 0.15
"""Largest turn in radians, relative change of size, and shift as a part of half the image."""


def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(images [N, 8, 8] of 0 to 16, labels [N]) in the file's order."""
    with np.load(path) as file:
        return file["images"], file["labels"].astype(np.int32)


def split(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(training, held out): disjoint, and together all."""
    order = np.random.default_rng(SPLIT_SEED).permutation(count)
    return order[HELD_OUT:], order[:HELD_OUT]


def distortions(count: int, seed: int, epoch: int) -> np.ndarray:
    """[count, 2, 3]: where the pixels of each image come from in this epoch, whichever rank has the image."""
    chance = np.random.default_rng([seed, epoch, 1]).uniform(-1, 1, (count, 4)).astype(np.float32)
    angle, scale = TURN * chance[:, 0], 1 + RESIZE * chance[:, 1]
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    rows = [[cosine, -sine, SHIFT * chance[:, 2]], [sine, cosine, SHIFT * chance[:, 3]]]
    return np.transpose(np.array(rows), (2, 0, 1))


def drawn(images: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """`images` [N, 8, 8] seen through `places` between their pixels, as bytes [N, size, size, 1]; outside is black."""
    line = (2 * np.arange(size, dtype=np.float32) + 1) / size - 1
    grid = np.stack([*np.meshgrid(line, line), np.ones((size, size), np.float32)], -1)
    seen = np.einsum("nij,hwj->nhwi", places, grid)
    side = images.shape[1]
    x, y = (((seen[..., axis] + 1) * side - 1) / 2 for axis in (0, 1))
    left, top = np.floor(x), np.floor(y)
    padded = np.pad(images.astype(np.float32) / WHITE, ((0, 0), (1, 1), (1, 1)))
    number = np.arange(len(images))[:, None, None]
    total = np.zeros(x.shape, np.float32)
    for row, height in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, width in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = [np.clip(place + 1, 0, side + 1).astype(np.int32) for place in (row, column)]
            total += height * width * padded[number, inside[0], inside[1]]
    return np.round(255 * total).astype(np.uint8)[..., None]


class Digits:
    """The digits as training and evaluation take them."""

    def __init__(self, path: Path, *, image_size: int, seed: int, place: Place) -> None:
        images, labels = read_digits(path)
        train, held_out = split(len(labels))
        self.size, self.seed, self.place = image_size, seed, place
        self.images, self.labels = images[train], labels[train]
        self._hold_out(images[held_out], labels[held_out])

    def hold_out_training(self) -> None:
        """Evaluate on digits of the training from now on, as many as were held out (a run broken on purpose)."""
        self._hold_out(self.images[:HELD_OUT], self.labels[:HELD_OUT])

    def _hold_out(self, images: np.ndarray, labels: np.ndarray) -> None:
        mine = slice(self.place.rank, None, self.place.world_size)
        straight = np.broadcast_to(np.eye(2, 3, dtype=np.float32), (len(labels[mine]), 2, 3))
        self.held_out = {"images": drawn(images[mine], straight, self.size), "labels": labels[mine]}
        self._stored = np.asarray(images[mine]).astype(np.int64)  # whole numbers, of 0 to 16

    def train_batches(self, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        """This rank's full batches of an epoch, without the first `skip`."""
        places = distortions(len(self.labels), self.seed, epoch)
        for mine in shards(shuffled(len(self.labels), self.seed, epoch), batch_size, self.place, skip):
            yield {"images": drawn(self.images[mine], places[mine], self.size), "labels": self.labels[mine]}

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """This rank's share of the 500 held-out digits, each once; the last batch may be short."""
        images, labels = self.held_out["images"], self.held_out["labels"]
        for first in range(0, len(labels), batch_size):
            mine = slice(first, first + batch_size)
            for pixels, label in zip(self._stored[mine], labels[mine]):
                ask(pixels, int(label))
            yield {"images": images[mine], "labels": labels[mine]}
