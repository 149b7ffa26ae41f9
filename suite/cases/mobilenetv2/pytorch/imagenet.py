"""The data of full: photographs in folders named by class, decoded by Pillow in processes of their own."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from crops import middle_crop, random_crop
from data import Batch, Place, mix, shards, shuffled
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from suite.drivers.asked import Ask, unheard
from suite.drivers.events import RunProblem

ENDINGS = (".jpeg", ".jpg", ".png")
WAIT_S = 600
"""The longest wait for a batch of the decoding processes."""


class Files(NamedTuple):
    """The photographs below a folder, class after class. Two arrays: processes share them without copying."""

    folder: Path
    names: np.ndarray
    """Paths below the folder, as bytes of one length."""
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
        found = sorted(e.name for e in os.scandir(folder / name) if e.name.lower().endswith(ENDINGS))
        names += [os.fsencode(f"{name}/{photograph}") for photograph in found]
        labels += [numbers[name]] * len(found)
    if not names:
        raise RunProblem(
            f"{folder} holds no photograph in folders of its classes, <class>/<name>.JPEG: unpack it there"
        )
    return Files(folder, np.array(names), np.array(labels, dtype=np.int64), classes or here)


def decode(path: Path, size: int, random: Random | None) -> Tensor:
    """[size, size, 3] in bytes: a random crop, or without `random` the middle one. Raises RunProblem."""
    from PIL import Image  # only the full data needs it: mini runs where it is not installed

    try:
        with Image.open(path) as file:
            photograph = file.convert("RGB")
    except OSError as problem:  # Pillow's own errors are of this kind
        raise RunProblem(f"{path} cannot be decoded ({problem}): fetch the file again") from problem
    crop = random_crop(*photograph.size, random) if random else middle_crop(*photograph.size)
    # One resampling of the box, antialiased, instead of a crop and a resize.
    seen = photograph.resize((size, size), Image.Resampling.BILINEAR, box=crop[:4])
    if crop.mirrored:
        seen = seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(seen))


class Photographs(Dataset):
    """Decodes what it is asked for: (index, seed), seed None for the middle crop."""

    def __init__(self, files: Files, size: int) -> None:
        self.files, self.size = files, size

    def __getitem__(self, asked: tuple[int, int | None]) -> tuple[Tensor, int]:
        index, seed = asked
        # One stream of chance for each image of an epoch, whichever process or rank has it.
        random = None if seed is None else Random(seed << 24 | index)
        path = self.files.folder / os.fsdecode(self.files.names[index])
        return decode(path, self.size, random), int(self.files.labels[index])


class Asked:
    """The batches of indices that a loader hands to its processes; set before each pass over the data."""

    def __init__(self) -> None:
        self.batches: Iterator[list[tuple[int, int | None]]] = iter(())

    def __iter__(self) -> Iterator[list[tuple[int, int | None]]]:
        return self.batches


class ImageNet:
    """Both parts of the data as training and evaluation take them."""

    def __init__(
        self, train: Path, held_out: Path, *, classes: int, image_size: int, seed: int, place: Place, workers: int
    ) -> None:
        if importlib.util.find_spec("PIL") is None:
            raise RunProblem("Pillow is not installed, which decodes the photographs: pip install pillow")
        self.seed, self.place, self.classes = seed, place, classes
        self.train = find_files(train)
        if len(self.train.classes) != classes:
            have = len(self.train.classes)
            raise RunProblem(f"{train} has {have} classes, not num_classes = {classes}: unpack the whole training part")
        self.held_out = find_files(held_out, self.train.classes)
        self._train_asked, self._eval_asked = Asked(), Asked()
        self._train_loader = _loader(Photographs(self.train, image_size), self._train_asked, workers)
        self._eval_loader = _loader(Photographs(self.held_out, image_size), self._eval_asked, workers)

    def train_batches(self, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        """This rank's full batches of an epoch, without the first `skip`."""
        seed = mix(self.seed, epoch)
        order = shuffled(len(self.train.labels), self.seed, epoch)
        batches = shards(order, batch_size, self.place, skip)
        self._train_asked.batches = ([(index, seed) for index in mine] for mine in batches)
        yield from _named(self._train_loader)

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """This rank's share of the held-out photographs, each once; the last batch may be short."""
        mine = range(self.place.rank, len(self.held_out.labels), self.place.world_size)
        self._eval_asked.batches = (
            [(index, None) for index in mine[first : first + batch_size]] for first in range(0, len(mine), batch_size)
        )
        drawn = iter(mine)
        for batch in _named(self._eval_loader):
            for index in islice(drawn, len(batch["labels"])):
                ask(os.fsdecode(self.held_out.names[index]), int(self.held_out.labels[index]))
            yield batch


def _loader(photographs: Photographs, asked: Asked, workers: int) -> DataLoader:
    """Processes that live as long as the run. Their seeds come from a generator of their own, not from the run's."""
    kept = {"persistent_workers": True, "prefetch_factor": 2, "timeout": WAIT_S} if workers else {}
    return DataLoader(photographs, batch_sampler=asked, num_workers=workers, generator=torch.Generator(), **kept)


def _named(loader: DataLoader) -> Iterator[Batch]:
    for images, labels in loader:
        yield {"images": images, "labels": labels}
