"""The data of full: videos in folders named by class, as UCF101's subset has them; clips are random parts of them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from data import Batch, Job, Place, chance
from decoders import ARRAYS, VIDEOS, check_decoder, read
from frames import cut, random_box, span, spread, whole_box

from suite.drivers.asked import Ask, unheard
from suite.drivers.events import RunProblem


class Part(NamedTuple):
    """The videos below a folder, class after class."""

    folder: Path
    names: list[str]
    """`<class>/<video>`: a video file, an array, or a folder of pictures."""
    labels: list[int]
    classes: tuple[str, ...]


def find_videos(folder: Path, key: str, classes: tuple[str, ...] | None = None) -> Part:
    """Every video, classes in the order of their folders' names. Raises RunProblem.

    `classes` are those of the training part: the evaluation numbers them in the same way, and may hold fewer.
    """
    if not folder.is_dir():
        raise RunProblem(f"{folder} ({key}) is missing: python -m tools data status vivit says how to get it")
    here = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))
    unknown = sorted(set(here) - set(classes or here))
    if unknown:
        raise RunProblem(f"{folder} ({key}) has the class {unknown[0]!r}, which train_data lacks: remove or add it")
    names, labels = [], []
    for name in here:
        found = sorted(entry.name for entry in os.scandir(folder / name) if _is_video(entry))
        names += [f"{name}/{video}" for video in found]
        labels += [(classes or here).index(name)] * len(found)
    if not names:
        raise RunProblem(f"{folder} ({key}) holds no <class>/<video>.avi: unpack the videos there")
    check_decoder(names, folder)
    return Part(folder, names, labels, classes or here)


def _is_video(entry: os.DirEntry) -> bool:
    return entry.is_dir() or Path(entry.name).suffix.lower() in (*VIDEOS, *ARRAYS)


class RandomClips:
    """The builder of training batches: of each video one random moment, cropped and mirrored at random."""

    def __init__(self, part: Part, *, frames: int, size: int, seconds: float, seed: int) -> None:
        self.part, self.frames, self.size, self.seconds, self.seed = part, frames, size, seconds, seed

    def __call__(self, job: Job) -> Batch:
        clips = [self.clip(video, chance(self.seed, job, nth)) for nth, video in enumerate(job.clips)]
        return {"clips": np.stack(clips), "labels": np.array([self.part.labels[video] for video in job.clips])}

    def clip(self, video: int, random: np.random.Generator) -> np.ndarray:
        """[frames, size, size, 3]; the box is the same in all frames."""
        moment = random.random()

        def choose(count: int, fps: float) -> tuple[int, int]:
            length = span(count, fps, self.seconds)
            return int(moment * (count - length + 1)), length

        seen, _ = read(self.part.folder / self.part.names[video], choose)
        box = random_box(*seen.shape[1:3], random)
        return cut(seen[spread(0, len(seen), self.frames)], box, self.size)


class Ucf101:
    """Both parts of the data as training and evaluation take them."""

    def __init__(
        self, train: Path, held_out: Path, *, classes: int, frames: int, size: int, fps: float, seed: int, place: Place,
        threads: int,
    ) -> None:  # fmt: skip
        part = find_videos(train, "train_data")
        if len(part.classes) != classes:
            raise RunProblem(f"{train} has {len(part.classes)} classes, num_classes is {classes}: set num_classes")
        self.frames, self.size, self.seconds, self.place = frames, size, frames / fps, place
        self.count, self.threads = len(part.names), max(1, threads)
        self.builder = RandomClips(part, frames=frames, size=size, seconds=self.seconds, seed=seed)
        self.held_out = find_videos(held_out, "eval_data", part.classes)

    def hold_out_training(self) -> None:
        """Evaluate the videos of the training from now on (a run broken on purpose)."""
        self.held_out = self.builder.part

    def eval_batches(self, batch_size: int, ask: Ask = unheard) -> Iterator[Batch]:
        """Every clip of this rank's share of the held-out videos, each once; the last batch may be short."""
        clips: list[np.ndarray] = []
        labels: list[int] = []
        for video, found in self._all_clips():
            ask(self.held_out.names[video], self.held_out.labels[video])
            clips += found
            labels += [self.held_out.labels[video]] * len(found)
            while len(clips) >= batch_size:
                yield {"clips": np.stack(clips[:batch_size]), "labels": np.array(labels[:batch_size])}
                del clips[:batch_size], labels[:batch_size]
        if clips:
            yield {"clips": np.stack(clips), "labels": np.array(labels)}

    def _all_clips(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """(video, its clips), decoded by threads, in order and not far ahead."""
        mine = range(self.place.rank, len(self.held_out.names), self.place.world_size)
        with ThreadPoolExecutor(self.threads) as pool:
            waiting = deque()
            for video in mine:
                waiting.append((video, pool.submit(self.clips_of, video)))
                if len(waiting) > self.threads:
                    done, clips = waiting.popleft()
                    yield done, clips.result()
            for done, clips in waiting:
                yield done, clips.result()

    def clips_of(self, video: int) -> list[np.ndarray]:
        """A held-out video cut into clips one after the other, whole frames; what is left at its end is left out."""
        seen, fps = read(self.held_out.folder / self.held_out.names[video])
        length = span(len(seen), fps, self.seconds)
        box = whole_box(*seen.shape[1:3])
        starts = range(0, len(seen) - length + 1, length)
        return [cut(seen[spread(first, length, self.frames)], box, self.size) for first in starts]
