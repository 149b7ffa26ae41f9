"""The data of mini: handwritten digits that move over a dark field in one of eight directions. Which one?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from data import Batch, Job, Place

from suite.drivers.asked import Ask, unheard

TRAIN_CLIPS, EVAL_CLIPS = 2000, 400
HELD_OUT = 500
"""Digits that are seen in the evaluation only."""
SPLIT_SEED = 0
"""The split and the movements are the same for every seed of a run."""
DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
"""Rows and columns of a step: the class is the number of the direction."""
SPEED = (1.4, 2.4)
"""Pixels a frame, in clips of 32 x 32."""
SIDE = 14
"""Of a digit on the field, in pixels."""
WHITE = 16
"""The largest value of a pixel in the file."""


def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(for training, held out): images [N, SIDE, SIDE] in bytes, disjoint, and together all."""
    with np.load(path) as file:
        images = file["images"]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    enlarged = enlarge(images[order])
    return enlarged[HELD_OUT:], enlarged[:HELD_OUT]


def enlarge(images: np.ndarray) -> np.ndarray:
    """[N, 8, 8] of 0 to WHITE -> [N, SIDE, SIDE] in bytes, bilinear."""
    size = images.shape[-1]
    at = np.clip((np.arange(SIDE) + 0.5) * size / SIDE - 0.5, 0, size - 1)
    low = np.minimum(at.astype(int), size - 2)
    weights = np.zeros((SIDE, size))
    weights[np.arange(SIDE), low] = 1 - (at - low)
    weights[np.arange(SIDE), low + 1] += at - low
    return np.rint(weights @ images @ weights.T * 255 / WHITE).astype(np.uint8)


class MovingDigits:
    """Makes clips of digits by their number; also the builder of batches: it is small, and can be pickled."""

    def __init__(self, digits: np.ndarray, part: int, frames: int, size: int) -> None:
        self.digits, self.part, self.frames, self.size = digits, part, frames, size

    def __call__(self, job: Job) -> Batch:
        return self.batch(job.clips)

    def batch(self, numbers: tuple[int, ...] | range) -> Batch:
        """These clips. The field is dark and nothing is drawn by chance: the same clip is the same in every epoch."""
        clips = np.stack([self.clip(number) for number in numbers])
        return {"clips": clips[..., None], "labels": np.array([label_of(number) for number in numbers])}

    def clip(self, number: int) -> np.ndarray:
        """[frames, size, size]: digit, start and speed come from the number alone."""
        random = np.random.default_rng((SPLIT_SEED, self.part, number))
        digit = self.digits[random.integers(len(self.digits))]
        way = np.array(DIRECTIONS[label_of(number)]) / np.hypot(*DIRECTIONS[label_of(number)])
        step = way * random.uniform(*SPEED)
        room = self.size - SIDE
        # A start from which the whole way stays on the field.
        lowest, highest = np.maximum(0, -step * (self.frames - 1)), np.minimum(room, room - step * (self.frames - 1))
        start = random.uniform(lowest, np.maximum(lowest, highest))
        field = np.zeros((self.frames, self.size, self.size), np.uint8)
        for frame in range(self.frames):
            y, x = np.clip(np.rint(start + step * frame), 0, room).astype(int)
            field[frame, y : y + SIDE, x : x + SIDE] = digit
        return field


def label_of(number: int) -> int:
    """The direction of a clip: all are equally frequent."""
    return number % len(DIRECTIONS)


class Digits:
    """Both parts of the data as training and evaluation take them."""

    def __init__(self, path: Path, *, frames: int, size: int, place: Place) -> None:
        train, held_out = read_digits(path)
        self.count, self.place = TRAIN_CLIPS, place
        self.builder = MovingDigits(train, 0, frames, size)
        self.held_out = MovingDigits(held_out, 1, frames, size)

    def hold_out_training(self) -> None:
        """Evaluate clips of the training from now on, as many as were held out (a run broken on purpose)."""
        self.held_out = self.builder

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """This rank's share of the evaluation, each clip once; the last batch may be short."""
        mine = range(self.place.rank, EVAL_CLIPS, self.place.world_size)
        for first in range(0, len(mine), batch_size):
            some = mine[first : first + batch_size]
            for number in some:
                ask(self.held_out.part, number)
            yield self.held_out.batch(some)
