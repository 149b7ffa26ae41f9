"""Masked sequences, end to end in memory without padding: what every data set of this case is read into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Indices of the spans start .. start + length, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def bounds_of(lengths: np.ndarray) -> np.ndarray:
    """[0, l0, l0 + l1, …]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Pairs of segments with masked places. Sequence i is tokens[bounds[i] : bounds[i + 1]]."""

    tokens: np.ndarray
    """[CLS] first segment [SEP] second segment [SEP], with masks in place."""
    segments: np.ndarray
    """0 or 1 of each token."""
    bounds: np.ndarray
    places: np.ndarray
    """Where something was masked, counted from the start of its own sequence."""
    ids: np.ndarray
    """What stood there."""
    marks: np.ndarray
    """The masked places of sequence i are places[marks[i] : marks[i + 1]]."""
    next_class: np.ndarray
    """[n] 0: the second segment follows the first, 1: it is from elsewhere."""

    def __len__(self) -> int:
        return len(self.next_class)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence."""
        return np.diff(self.bounds)

    @property
    def predictions(self) -> np.ndarray:
        """Masked places of each sequence."""
        return np.diff(self.marks)

    def rows(self, first: int, last: int) -> Sequences:
        """Sequences `first` to `last` - 1, without a copy."""
        text = slice(self.bounds[first], self.bounds[last])
        masked = slice(self.marks[first], self.marks[last])
        return Sequences(
            tokens=self.tokens[text],
            segments=self.segments[text],
            bounds=self.bounds[first : last + 1] - self.bounds[first],
            places=self.places[masked],
            ids=self.ids[masked],
            marks=self.marks[first : last + 1] - self.marks[first],
            next_class=self.next_class[first:last],
        )

    def each(self) -> Iterator[Sequences]:
        """Every sequence by itself, without a copy."""
        return (self.rows(one, one + 1) for one in range(len(self)))

    def take(self, order: np.ndarray) -> Sequences:
        """The sequences of `order`, in that order."""
        text = spans(self.bounds[order], self.lengths[order])
        masked = spans(self.marks[order], self.predictions[order])
        return Sequences(
            tokens=self.tokens[text],
            segments=self.segments[text],
            bounds=bounds_of(self.lengths[order]),
            places=self.places[masked],
            ids=self.ids[masked],
            marks=bounds_of(self.predictions[order]),
            next_class=self.next_class[order],
        )


def join(parts: Sequence[Sequences]) -> Sequences:
    """All sequences of `parts`, in order."""
    return Sequences(
        tokens=np.concatenate([part.tokens for part in parts]),
        segments=np.concatenate([part.segments for part in parts]),
        bounds=bounds_of(np.concatenate([part.lengths for part in parts])),
        places=np.concatenate([part.places for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
        marks=bounds_of(np.concatenate([part.predictions for part in parts])),
        next_class=np.concatenate([part.next_class for part in parts]),
    )


def from_padded(
    tokens: np.ndarray,
    segments: np.ndarray,
    lengths: np.ndarray,
    places: np.ndarray,
    ids: np.ndarray,
    next_class: np.ndarray,
) -> Sequences:
    """From matrices with one sequence a row. A place of 0 is padding: [CLS] is never masked."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    masked = places > 0
    return Sequences(
        tokens=tokens[real].astype(np.int32),
        segments=segments[real].astype(np.int8),
        bounds=bounds_of(lengths),
        places=places[masked].astype(np.int32),
        ids=ids[masked].astype(np.int32),
        marks=bounds_of(masked.sum(1)),
        next_class=next_class.astype(np.int8),
    )


def mean_work(sequences: Sequences) -> tuple[float, float, float]:
    """(tokens, pairs of query and key, masked places) of a mean sequence."""
    lengths = sequences.lengths.astype(np.float64)
    return float(lengths.mean()), float((lengths**2).mean()), float(sequences.predictions.mean())
