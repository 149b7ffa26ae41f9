"""The data of full: photographs in folders named by class, read, decoded and cropped ahead by tf.data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from data import Batch, Place, shards, shuffled

from suite.drivers.asked import Ask, unheard
from suite.drivers.events import RunProblem

ENDINGS = (".jpeg", ".jpg", ".png")
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
"""Of a training crop: the part of the photograph that it covers, its width over height, and how often one is drawn."""
EVAL_MARGIN = 256 / 224
"""The evaluation scales the shorter side to this many times the crop's."""


class Files(NamedTuple):
    """The photographs below a folder, class after class."""

    names: list[str]
    labels: np.ndarray
    classes: tuple[str, ...]


def find_files(folder: Path, classes: tuple[str, ...] | None = None) -> Files:
    """Every photograph, classes in order of their folders' names. Raises RunProblem.

    `classes` are those of the training part: the evaluation numbers them in the same way, and may hold fewer.
    """
    if not folder.is_dir():
        raise RunProblem(f"{folder} is missing: python -m tools data status mobilenetv2 says how to get it")
    here = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))
    unknown = sorted(set(here) - set(classes or here))
    if unknown:
        raise RunProblem(f"{folder} has the class {unknown[0]!r}, which the training part lacks: remove or add it")
    numbers = {name: number for number, name in enumerate(classes or here)}
    names, labels = [], []
    for name in here:
        found = sorted(e.path for e in os.scandir(folder / name) if e.name.lower().endswith(ENDINGS))
        names += found
        labels += [numbers[name]] * len(found)
    if not names:
        raise RunProblem(
            f"{folder} holds no photograph in folders of its classes, <class>/<name>.JPEG: unpack it there"
        )
    return Files(names, np.array(labels, dtype=np.int32), classes or here)


def training_view(photograph: tf.Tensor, size: int, chance: tf.Tensor) -> tf.Tensor:
    """A part of random area and shape, mirrored every other time; all of its chance is in `chance`."""
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(photograph), whole, chance, aspect_ratio_range=RATIO, area_range=AREA, max_attempts=TRIES
    )
    seen = _resized(tf.slice(photograph, begin, extent), size)
    return tf.image.stateless_random_flip_left_right(seen, chance + 1)


def middle_view(photograph: tf.Tensor, size: int) -> tf.Tensor:
    """The middle square that a crop of the scaled photograph shows."""
    height, width = tf.unstack(tf.shape(photograph)[:2])
    side = tf.cast(tf.cast(tf.minimum(height, width), tf.float32) / EVAL_MARGIN, tf.int32)
    seen = tf.image.crop_to_bounding_box(photograph, (height - side) // 2, (width - side) // 2, side, side)
    return _resized(seen, size)


def _resized(photograph: tf.Tensor, size: int) -> tf.Tensor:
    seen = tf.image.resize(photograph, (size, size), antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(seen), 0, 255), tf.uint8)


class ImageNet:
    """Both parts of the data as training and evaluation take them."""

    def __init__(
        self, train: Path, held_out: Path, *, classes: int, image_size: int, seed: int, place: Place, ahead: int
    ) -> None:
        self.seed, self.place, self.size, self.ahead = seed, place, image_size, max(1, ahead)
        self.train = find_files(train)
        if len(self.train.classes) != classes:
            have = len(self.train.classes)
            raise RunProblem(f"{train} has {have} classes, not num_classes = {classes}: unpack the whole training part")
        self.held_out = find_files(held_out, self.train.classes)

    def train_batches(self, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        """This rank's full batches of an epoch, without the first `skip`."""
        order = shuffled(len(self.train.labels), self.seed, epoch)
        mine = [index for batch in shards(order, batch_size, self.place, skip) for index in batch]
        return self._batches(self.train, mine, batch_size, (self.seed * 1_000_003 + epoch) % 2**31)

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """This rank's share of the held-out photographs, each once; the last batch may be short."""
        mine = range(self.place.rank, len(self.held_out.labels), self.place.world_size)
        drawn = iter(mine)
        for batch in self._batches(self.held_out, mine, batch_size, None):
            for index in islice(drawn, len(batch["labels"])):
                ask("/".join(Path(self.held_out.names[index]).parts[-2:]), int(self.held_out.labels[index]))
            yield batch

    def _batches(self, files: Files, order: Sequence[int], batch_size: int, seed: int | None) -> Iterator[Batch]:
        """In order, `num_workers` photographs at a time; the host computes them, whatever trains."""
        size = self.size

        def view(name: tf.Tensor, label: tf.Tensor, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            photograph = tf.io.decode_image(tf.io.read_file(name), 3, expand_animations=False)
            photograph.set_shape((None, None, 3))
            if seed is None:
                return middle_view(photograph, size), label
            # One stream of chance for each image of an epoch, whichever rank has it.
            return training_view(photograph, size, tf.stack([seed, index])), label

        with tf.device("CPU:0"):
            chosen = np.array(order, dtype=np.int32)
            names = [files.names[index] for index in order]
            source = tf.data.Dataset.from_tensor_slices((names, files.labels[chosen], chosen))
            views = source.map(view, num_parallel_calls=self.ahead, deterministic=True)
            for images, labels in views.batch(batch_size).prefetch(2).as_numpy_iterator():
                yield {"images": images, "labels": labels}
