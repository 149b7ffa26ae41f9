"""The data of the preset `full`: COCO's annotations/instances_*.json, and its images in the folder of that name.

An image is scaled to fill the canvas (upright ones a canvas on its side) as far as it goes. A batch holds images of
one orientation, so there are two shapes in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from data import LOT, Picture, Place, Truth, global_batches, own_part, shuffled

from suite.drivers.events import RunProblem

try:
    from PIL import Image
except ImportError:
    Image = None

AHEAD = 2
"""Batches that are being decoded while one is used."""


class Entry(NamedTuple):
    """One image of the file, in its own pixels."""

    path: Path
    width: int
    height: int
    truth: Truth

    @property
    def upright(self) -> bool:
        """Whether it needs the canvas on its side."""
        return self.height > self.width


def read(path: Path, num_classes: int, *, training: bool) -> list[Entry]:
    """The images of an instances file in its order. For training: no crowds, no images without a box.

    The file's category ids are the labels, as the published models have them: 91 classes, of which COCO uses 80.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        images, annotations = content["images"], content["annotations"]
    except (OSError, ValueError, KeyError) as problem:
        remedy = "python -m tools data status faster_rcnn says where it comes from"
        raise RunProblem(f"{path} is no COCO instances file ({problem!r}): {remedy}") from problem
    rows: dict[int, list[tuple[list[float], int, bool]]] = {}
    for note in annotations:
        if not 0 < note["category_id"] < num_classes:
            number = note["category_id"]
            raise RunProblem(f"{path} has category {number}, num_classes is {num_classes}: it must be larger")
        left, top, width, height = note["bbox"]
        if not training or (width > 0 and height > 0 and not note["iscrowd"]):
            box = [left, top, left + width, top + height]
            rows.setdefault(note["image_id"], []).append((box, note["category_id"], bool(note["iscrowd"])))
    folder = path.parent.parent / path.stem.removeprefix("instances_")
    return [
        Entry(folder / image["file_name"], image["width"], image["height"], _truth(rows.get(image["id"], [])))
        for image in images
        if not training or image["id"] in rows
    ]


def _truth(rows: list[tuple[list[float], int, bool]]) -> Truth:
    boxes = np.array([row[0] for row in rows], np.float32).reshape(-1, 4)
    return Truth(boxes, np.array([row[1] for row in rows], np.int64), np.array([row[2] for row in rows], bool))


class Coco:
    """Training and evaluation images as the case asks for them."""

    def __init__(
        self,
        train: Path,
        held_out: Path,
        *,
        num_classes: int,
        canvas: tuple[int, int],
        workers: int,
        seed: int,
        place: Place,
    ) -> None:
        if Image is None:
            raise RunProblem("pillow cannot be imported, which reads COCO's images: pip install pillow")
        self.canvas, self.seed, self.place = canvas, seed, place
        self.train = read(train, num_classes, training=True)
        self.held_out = read(held_out, num_classes, training=False)
        self.truths = [entry.truth for entry in self.held_out]
        self._pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="decode")

    def hold_out_training(self) -> None:
        """Evaluate the images of the training from now on (a run broken on purpose)."""
        self.held_out = self.train
        self.truths = [entry.truth for entry in self.held_out]

    def question(self, index: int) -> tuple[object, ...]:
        """What an image of the evaluation is known by: its file's name and the classes to be found."""
        return self.held_out[index].path.name, self.held_out[index].truth.labels

    def batches(self, epoch: int, size: int, skip: int) -> Iterator[list[Picture]]:
        """This rank's pictures of each global batch of `size` images, without the first `skip`; half are mirrored."""
        order, keys = shuffled(len(self.train), self.seed, epoch)
        upright = np.array([entry.upright for entry in self.train], int)
        mine = (own_part(batch, self.place) for batch in islice(global_batches(order, size, upright), skip, None))
        yield from self._decoded([(self.train[index], int(keys[index])) for index in batch] for batch in mine)

    def eval_batches(self, size: int) -> Iterator[tuple[list[int], list[float], list[Picture]]]:
        """(indices, factors from the image to the canvas, pictures) of this rank's share, each image once."""
        share = range(self.place.rank, len(self.held_out), self.place.world_size)
        parts = []
        for upright in (False, True):
            same = [index for index in share if self.held_out[index].upright == upright]
            parts += [same[first : first + size] for first in range(0, len(same), size)]
        pictures = self._decoded([(self.held_out[index], None) for index in part] for part in parts)
        for part, batch in zip(parts, pictures):
            yield part, [self._factor(self.held_out[index]) for index in part], batch

    def _decoded(self, batches: Iterable[list[tuple[Entry, int | None]]]) -> Iterator[list[Picture]]:
        """Pictures of the batches in turn, made by threads: decoding and scaling hold no lock."""
        waiting = []
        for batch in batches:
            waiting.append([self._pool.submit(self.picture, *image) for image in batch])
            if len(waiting) > AHEAD:
                yield [future.result() for future in waiting.pop(0)]
        for futures in waiting:
            yield [future.result() for future in futures]

    def picture(self, entry: Entry, key: int | None) -> Picture:
        """The image on the scale of the canvas; mirrored by the key of training, never without one."""
        factor = self._factor(entry)
        size = (max(1, int(entry.width * factor)), max(1, int(entry.height * factor)))
        try:
            with Image.open(entry.path) as image:
                pixels = np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR))
        except OSError as problem:
            raise RunProblem(f"{entry.path} cannot be read ({problem}): fetch COCO's images again") from problem
        boxes, labels = entry.truth.boxes * factor, entry.truth.labels
        if key is not None and key >= LOT // 2:
            pixels = pixels[:, ::-1]
            boxes = np.stack([size[0] - boxes[:, 2], boxes[:, 1], size[0] - boxes[:, 0], boxes[:, 3]], 1)
        return Picture(pixels, boxes, labels, key or 0)

    def _factor(self, entry: Entry) -> float:
        height, width = sorted(self.canvas, reverse=entry.upright)
        return min(height / entry.height, width / entry.width)
