"""The data of full: photographs in folders named by class, decoded by Pillow in threads of each rank."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
from crops import middle_crop, random_crop
from data import Batch, Place, mix, shards, shuffled

from suite.drivers.asked import Ask, unheard
from suite.drivers.events import RunProblem

ENDINGS = (".jpeg", ".jpg", ".png")


def find_files(folder: Path) -> tuple[list[tuple[str, int]], int]:
    """([(path below the folder, class)], number of classes), classes in order of their names. Raises RunProblem."""
    if not folder.is_dir():
        raise RunProblem(f"{folder} is missing: python -m tools data status mobilenetv2 says how to get it")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    found = [
        (f"{name}/{file}", number)
        for number, name in enumerate(names)
        for file in sorted(entry.name for entry in os.scandir(folder / name))
        if file.lower().endswith(ENDINGS)
    ]
    if not found:
        raise RunProblem(
            f"{folder} holds no photograph in folders of its classes, <class>/<name>.JPEG: unpack it there"
        )
    return found, len(names)


def decode(path: Path, size: int, random: Random | None) -> np.ndarray:
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
    return np.array(seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.mirrored else seen)


class ImageNet:
    """Both parts of the data as training and evaluation take them."""

    def __init__(
        self, train: Path, held_out: Path, *, classes: int, image_size: int, seed: int, place: Place, workers: int
    ) -> None:
        if importlib.util.find_spec("PIL") is None:
            raise RunProblem("Pillow is not installed, which decodes the photographs: pip install pillow")
        self.seed, self.place, self.size = seed, place, image_size
        self.parts = {}
        for name, folder in (("train", train), ("held_out", held_out)):
            files, have = find_files(folder)
            if have != classes:
                raise RunProblem(f"{folder} has {have} classes, not num_classes = {classes}: unpack all of it there")
            self.parts[name] = folder, files
        self._threads = ThreadPoolExecutor(max(1, workers), thread_name_prefix="decode")

    def train_batches(self, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        """This rank's full batches of an epoch, without the first `skip`."""
        seed, (_, files) = mix(self.seed, epoch), self.parts["train"]
        for mine in shards(shuffled(len(files), self.seed, epoch), batch_size, self.place, skip):
            # One stream of chance for each image of an epoch, whichever thread or rank has it.
            yield self._batch("train", [(index, Random(seed << 24 | index)) for index in mine])

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """This rank's share of the held-out photographs, each once; the last batch may be short."""
        files = self.parts["held_out"][1]
        mine = range(self.place.rank, len(files), self.place.world_size)
        for first in range(0, len(mine), batch_size):
            some = mine[first : first + batch_size]
            for index in some:
                ask(Path(files[index][0]).as_posix(), files[index][1])
            yield self._batch("held_out", [(index, None) for index in some])

    def _batch(self, part: str, asked: list[tuple[int, Random | None]]) -> Batch:
        folder, files = self.parts[part]
        images = self._threads.map(lambda one: decode(folder / files[one[0]][0], self.size, one[1]), asked)
        return {"images": np.stack(list(images)), "labels": np.array([files[index][1] for index, _ in asked])}
