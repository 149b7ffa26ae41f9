"""The data of mini: 1,797 handwritten digits of 8 x 8 pixels, enlarged, and in training turned, shifted and resized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from data import Batch, Place, mix, shards, shuffled

from suite.drivers.asked import Ask, unheard

HELD_OUT = 500
SPLIT_SEED = 0
"""The split is the same for every seed of a run."""
WHITE = 16
"""The largest value of a pixel."""
TURN, RESIZE, SHIFT = 0.175, 0.125, 0.15
"""Largest turn in radians, relative change of size, and shift as a part of half the image."""
STRAIGHT = np.eye(2, 3, dtype=np.float32)


def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(images [N, 8, 8] of 0 to 16, labels [N]) in the file's order."""
    with np.load(path, allow_pickle=False) as file:
        return file["images"], file["labels"].astype(np.int64)


def split(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(training, held out): disjoint, and together all."""
    order = np.random.default_rng(SPLIT_SEED).permutation(count)
    return order[HELD_OUT:], order[:HELD_OUT]


def distortions(count: int, seed: int, epoch: int) -> np.ndarray:
    """[count, 2, 3]: where the pixels of each image come from in this epoch, whichever rank has the image."""
    chance = 2 * np.random.default_rng((mix(seed, epoch), 1)).random((count, 4), dtype=np.float32) - 1
    angle, scale = TURN * chance[:, 0], 1 + RESIZE * chance[:, 1]
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    rows = (
        np.stack([cosine, -sine, SHIFT * chance[:, 2]], 1),
        np.stack([sine, cosine, SHIFT * chance[:, 3]], 1),
    )
    return np.stack(rows, 1)


def drawn(images: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """`images` [N, S, S] seen through `places`, bilinear and black outside, as bytes [N, size, size, 1]."""
    side = images.shape[1]
    middle = (2 * np.arange(size, dtype=np.float32) + 1) / size - 1
    there = np.stack([*np.meshgrid(middle, middle), np.ones((size, size), np.float32)])
    # Pixel centres: -1 and 1 are the outer edges of the image.
    x, y = ((places @ there.reshape(3, -1) + 1) * side / 2 - 0.5).transpose(1, 0, 2)
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    right, low = x - left, y - top
    framed = np.pad(images.astype(np.float32) / WHITE, ((0, 0), (1, 1), (1, 1)))
    which = np.arange(len(images))[:, None]

    def at(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Pixels at these places; all that lies outside is in the black frame."""
        return framed[which, np.clip(rows + 1, 0, side + 1), np.clip(columns + 1, 0, side + 1)]

    upper = at(top, left) * (1 - right) + at(top, left + 1) * right
    lower = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right
    seen = upper * (1 - low) + lower * low
    return np.rint(255 * seen).astype(np.uint8).reshape(len(images), size, size, 1)


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
        straight = np.broadcast_to(STRAIGHT, (len(labels[mine]), 2, 3))
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
