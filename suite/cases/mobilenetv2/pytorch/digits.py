"""The data of mini: 1,797 handwritten digits of 8 x 8 pixels, enlarged, and in training turned, shifted and resized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from data import Batch, Place, mix, shards, shuffled
from torch import Tensor
from torch.nn import functional as F

from suite.drivers.asked import Ask, unheard

HELD_OUT = 500
SPLIT_SEED = 0
"""The split is the same for every seed of a run."""
WHITE = 16
"""The largest value of a pixel."""
TURN, RESIZE, SHIFT = 0.175, 0.125, 0.15
"""Largest turn in radians, relative change of size, and shift as a part of half the image."""


def read_digits(path: Path) -> tuple[Tensor, Tensor]:
    """(images [N, 8, 8] of 0 to 16, labels [N]) in the file's order."""
    with np.load(path) as file:
        return torch.from_numpy(file["images"]), torch.from_numpy(file["labels"]).long()


def split(count: int) -> tuple[list[int], list[int]]:
    """(training, held out): disjoint, and together all."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    return order[HELD_OUT:], order[:HELD_OUT]


def distortions(count: int, seed: int, epoch: int) -> Tensor:
    """[count, 2, 3]: where the pixels of each image come from in this epoch, whichever rank has the image."""
    generator = torch.Generator().manual_seed(mix(seed, epoch))
    chance = 2 * torch.rand(count, 4, generator=generator) - 1
    angle, scale = TURN * chance[:, 0], 1 + RESIZE * chance[:, 1]
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    rows = (torch.stack([cosine, -sine, SHIFT * chance[:, 2]], 1), torch.stack([sine, cosine, SHIFT * chance[:, 3]], 1))
    return torch.stack(rows, 1)


def drawn(images: Tensor, places: Tensor, size: int) -> Tensor:
    """`images` [N, 8, 8] seen through `places`, as bytes [N, size, size, 1]."""
    if not len(images):  # of a rank beyond the last image; affine_grid refuses none
        return torch.zeros(0, size, size, 1, dtype=torch.uint8)
    grid = F.affine_grid(places, [len(images), 1, size, size], align_corners=False)
    seen = F.grid_sample(images[:, None].float() / WHITE, grid, align_corners=False)
    return (255 * seen).round().to(torch.uint8).permute(0, 2, 3, 1)


class Digits:
    """The digits as training and evaluation take them."""

    classes = 10

    def __init__(self, path: Path, *, image_size: int, seed: int, place: Place) -> None:
        images, labels = read_digits(path)
        train, held_out = split(len(labels))
        self.size, self.seed, self.place = image_size, seed, place
        self.images, self.labels = images[train], labels[train]
        self._hold_out(images[held_out], labels[held_out])

    def hold_out_training(self) -> None:
        """Evaluate on digits of the training from now on, as many as were held out (a run broken on purpose)."""
        self._hold_out(self.images[:HELD_OUT], self.labels[:HELD_OUT])

    def _hold_out(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        mine = slice(self.place.rank, None, self.place.world_size)
        straight = torch.eye(2, 3).expand(len(labels[mine]), 2, 3)
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
