"""Batches, and who gets which: what all data sets of this case have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from model import IGNORED
from torch import Tensor

from suite.drivers.events import RunProblem

Batch = dict[str, Tensor]
"""`features` [B, mel_bins, audio_frames] and `labels` [B, T], what Whisper.forward takes."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


class Collator(NamedTuple):
    """The rules by which labels of different lengths become one matrix."""

    start_token: int
    multiple: int
    """T is a multiple of this: batches have few shapes."""
    longest: int
    """More labels than the decoder has places for."""

    def __call__(self, features: Tensor, labels: Sequence[Sequence[int]]) -> Batch:
        """A start token that begins a row is dropped, since the decoder puts it there; the rest of a row is IGNORED.

        Raises RunProblem for labels that do not fit.
        """
        rows = [list(row[1:]) if len(row) and row[0] == self.start_token else list(row) for row in labels]
        width = max(map(len, rows))
        if width > self.longest:
            raise RunProblem(
                f"a transcript has {width} tokens, max_labels is {self.longest}: leave it out, or cut its clip in two"
            )
        width = min(-(-width // self.multiple) * self.multiple, self.longest)
        matrix = torch.full((len(rows), max(width, 1)), IGNORED)
        for row, target in zip(rows, matrix):
            target[: len(row)] = torch.tensor(row, dtype=torch.int64)
        return {"features": features, "labels": matrix}


def shares(order: np.ndarray, batch_size: int, place: Place, skip: int = 0) -> Iterator[np.ndarray]:
    """This rank's part of each global batch, after the first `skip`: the k-th is the same set for any number of ranks.

    The last one is filled from the beginning, as Accelerate does, so that every sample is seen once or more.
    """
    together = batch_size * place.world_size
    steps = -(-len(order) // together)
    for step in range(skip, steps):
        first = step * together + place.rank * batch_size
        yield order[np.arange(first, first + batch_size) % len(order)]


def evaluation_share(count: int, place: Place) -> np.ndarray:
    """Every world_size-th index: disjoint shares that together are all."""
    return np.arange(place.rank, count, place.world_size)


def synthetic_batches(
    shape: tuple[int, int, int], labels: int, vocab_size: int, seed: int, place: Place
) -> Iterator[Batch]:
    """Endless random spectrograms of `shape` [B, mel_bins, frames] with `labels` random tokens each, no two alike."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + place.rank) % 2**31)
    while True:
        yield {
            "features": torch.rand(shape, generator=generator) * 2 - 1,
            "labels": torch.randint(0, vocab_size, (shape[0], labels), generator=generator),
        }


def shuffle_labels(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with its transcripts dealt out among its sounds."""
    order = torch.randperm(len(batch["labels"]), generator=generator)
    return batch | {"labels": batch["labels"][order]}
