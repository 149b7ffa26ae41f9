"""Batches of one fixed shape, and who gets which: what all data sets of this case have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from model import ABSENT, PAD
from sequences import Sequences, join, spans
from torch import Tensor

from suite.drivers.events import RunProblem

Batch = dict[str, Tensor]
"""What Bert.forward takes, and `length` [B]: the real tokens of each sequence, for counting them."""


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The fixed shape that sequences are laid into."""

    length: int
    """T, places of a row."""
    predictions: int
    """P, the most masked places of one sequence."""
    pack_multiple: int
    """0: one sequence a row. Else sequences share rows, and the number of rows is rounded up to this.

    B sequences then fill far fewer than B rows where they are short, and a batch has one of a few shapes.
    """

    def lay(self, sequences: Sequences, size: int = 0) -> Batch:
        """One batch; up to `size` sequences that are absent fill a shape, and are neither counted nor judged."""
        self._check(sequences)
        count, lengths = len(sequences), sequences.lengths
        absent = max(0, size - count)
        rows, first = self._places(lengths, absent)
        batch = self._rows(sequences, rows, first)
        shape = (count + absent, self.predictions)
        places, ids = np.zeros(shape, dtype=np.int64), np.full(shape, PAD, dtype=np.int64)
        which = np.repeat(np.arange(count), sequences.predictions)
        nth = spans(np.zeros(count, dtype=np.int64), sequences.predictions)
        places[which, nth] = first[which] + sequences.places
        ids[which, nth] = sequences.ids
        batch |= {
            "first": np.concatenate([first, np.zeros(absent, dtype=np.int64)]),
            "masked_places": places,
            "masked_ids": ids,
            "next_sentence": np.concatenate([sequences.next_class.astype(np.int64), np.full(absent, ABSENT)]),
            "length": np.concatenate([lengths, np.zeros(absent, dtype=np.int64)]),
        }
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _rows(self, sequences: Sequences, rows: int, first: np.ndarray) -> dict[str, np.ndarray]:
        """The matrices [rows, T]; those of full rows with one sequence each are two."""
        count, lengths = len(sequences), sequences.lengths
        into = spans(first, lengths)
        names = ["tokens", "segments", "owner", "positions"] if self.pack_multiple else ["tokens", "segments", "owner"]
        flat = {name: np.zeros(rows * self.length, dtype=np.int64) for name in names}
        flat["tokens"][into] = sequences.tokens
        flat["segments"][into] = sequences.segments
        flat["owner"][into] = np.repeat(np.arange(1, count + 1), lengths)
        if self.pack_multiple:
            flat["positions"][into] = spans(np.zeros(count, dtype=np.int64), lengths)
        elif len(into) == rows * self.length:
            del flat["owner"]
        else:
            flat["owner"][count * self.length :] = count + 1  # rows of absent sequences: a softmax needs something
        return {name: array.reshape(rows, self.length) for name, array in flat.items()}

    def _places(self, lengths: np.ndarray, absent: int) -> tuple[int, np.ndarray]:
        """(rows, where each sequence begins): longest first, each into the first row that has room."""
        if not self.pack_multiple:
            return len(lengths) + absent, np.arange(len(lengths)) * self.length
        room = np.full(len(lengths), self.length)
        first = np.zeros(len(lengths), dtype=np.int64)
        for index in np.argsort(-lengths, kind="stable"):
            row = int(np.argmax(room >= lengths[index]))
            first[index] = row * self.length + self.length - room[row]
            room[row] -= lengths[index]
        used = int((room < self.length).sum())
        return max(1, -(-used // self.pack_multiple)) * self.pack_multiple, first

    def _check(self, sequences: Sequences) -> None:
        for what, values, limit, key in (
            ("sequence", sequences.lengths, self.length, "sequence_length"),
            ("sequence's number of masked places", sequences.predictions, self.predictions, "max_predictions"),
        ):
            if len(values) and values.max() > limit:
                raise RunProblem(f"the data has a {what} of {values.max()}, {key} is {limit}: use data of that limit")


def micro_batches(chunks: Iterable[Sequences], batch_size: int, place: Place) -> Iterator[Sequences]:
    """This rank's share of the stream: each global batch is the next batch_size * world_size, cut evenly.

    So the k-th global batch is the same set whatever the number of ranks, as long as its size is. An incomplete last
    one is left out, on all ranks alike.
    """
    together = batch_size * place.world_size
    rest: Sequences | None = None
    for chunk in chunks:
        rest = join([rest, chunk]) if rest is not None and len(rest) else chunk
        first = 0
        while len(rest) - first >= together:
            mine = first + place.rank * batch_size
            yield rest.rows(mine, mine + batch_size)
            first += together
        rest = rest.rows(first, len(rest))


def evaluation_share(sequences: Sequences, place: Place) -> Sequences:
    """Every world_size-th sequence: disjoint shares that together are all."""
    return sequences.take(np.arange(place.rank, len(sequences), place.world_size))


def synthetic_batches(frame: Frame, *, vocab_size: int, seed: int, batch_size: int, place: Place) -> Iterator[Batch]:
    """Endless random batches of full rows: T tokens, P of them masked at random places, no two alike."""
    random = np.random.default_rng((seed, place.rank))
    shape = (batch_size, frame.length)
    row = np.arange(batch_size)[:, None]
    while True:
        border = random.integers(2, frame.length - 1, batch_size)[:, None]
        places = random.random(shape).argsort(1)[:, : frame.predictions]
        arrays = {
            "tokens": random.integers(1, vocab_size, shape),
            "segments": (np.arange(frame.length) >= border).astype(np.int64),
            "first": row[:, 0] * frame.length,
            "masked_places": row * frame.length + places,
            "masked_ids": random.integers(1, vocab_size, places.shape),
            "next_sentence": random.integers(0, 2, batch_size),
            "length": np.full(batch_size, frame.length),
        }
        yield {name: torch.from_numpy(array) for name, array in arrays.items()}


def shuffle_labels(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with what was masked dealt out among all masked places, and the classes of pairs among the pairs.

    What is left of the data is its statistics: how often each word was masked, and how often a segment next_class.
    """
    ids = batch["masked_ids"].clone()
    real = ids != PAD
    dealt = ids[real]
    ids[real] = dealt[torch.randperm(len(dealt), generator=generator)]
    pairs = torch.randperm(len(batch["next_sentence"]), generator=generator)
    return batch | {"masked_ids": ids, "next_sentence": batch["next_sentence"][pairs]}
