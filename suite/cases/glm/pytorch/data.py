"""Sequences, questions and batches: what both data sets of this case have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

PAD = 0
"""Fills what is left of a row; never scored, never seen by a real token."""

Batch = dict[str, Tensor]
"""`tokens` [B, C, T], `answer` [B, C, M], `separator` `blank` `answer_length` [B, C], `choices` [B]: real ones of C."""


class Filled(NamedTuple):
    """A context with a blank, and one candidate for what is missing."""

    context: Sequence[int]
    """Part A."""
    blank: int
    """Where in part A the blank stands."""
    start: int
    """Token that opens part B."""
    answer: Sequence[int]
    """What part B has to predict, token by token."""

    @property
    def tokens(self) -> int:
        """Length of parts A and B; the last token of the answer is predicted, never read."""
        return len(self.context) + len(self.answer)

    @property
    def pairs(self) -> int:
        """Pairs of query and key that the prefix mask lets through."""
        a, b = len(self.context), len(self.answer)
        return a * (a + b) + b * (b + 1) // 2


class Questions(Protocol):
    """Training data: for each epoch, questions in an order that depends on the seed and the epoch alone."""

    def __len__(self) -> int:
        """Questions of an epoch."""

    def epoch(self, seed: int, epoch: int) -> Sequence[Sequence[Filled]]:
        """All questions of the epoch in order, the right candidate of each first; built when they are asked for."""


class HeldOut(NamedTuple):
    """One question of the evaluation."""

    candidates: tuple[Filled, ...]
    right: frozenset[int]
    """The candidates that count as correct."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The fixed shape that questions are packed into."""

    choices: int
    """C: candidates of a question; missing ones repeat the first and are not scored."""
    length: int
    """T, the longest row."""
    max_answer: int
    """M, the longest answer."""
    pad_multiple: int
    """0: every batch is T wide, as a compiler likes it; else as wide as its longest row, rounded up to this."""

    def pack(self, questions: Sequence[Sequence[Filled]]) -> Batch:
        """One batch. A row longer than T is refused: the data sets cut their contexts when they are read."""
        shape = (len(questions), self.choices)
        tokens = np.full((*shape, self._width(questions)), PAD, dtype=np.int64)
        answer = np.full((*shape, self.max_answer), PAD, dtype=np.int64)
        marks = np.zeros((3, *shape), dtype=np.int64)
        for b, candidates in enumerate(questions):
            for c in range(self.choices):
                row = candidates[c] if c < len(candidates) else candidates[0]
                a, m = len(row.context), len(row.answer)
                tokens[b, c, :a] = row.context
                tokens[b, c, a] = row.start
                tokens[b, c, a + 1 : a + m] = row.answer[: m - 1]
                answer[b, c, :m] = row.answer
                marks[:, b, c] = a, row.blank, m
        choices = np.array([min(len(candidates), self.choices) for candidates in questions], dtype=np.int64)
        named = {"tokens": tokens, "answer": answer, "choices": choices}
        named |= dict(zip(("separator", "blank", "answer_length"), marks))
        return {name: torch.from_numpy(array) for name, array in named.items()}

    def _width(self, questions: Sequence[Sequence[Filled]]) -> int:
        if not self.pad_multiple:
            return self.length
        longest = max(row.tokens for candidates in questions for row in candidates)
        return min(self.length, -(-longest // self.pad_multiple) * self.pad_multiple)


class Place(NamedTuple):
    """This process among all."""

    rank: int
    world_size: int


def shards(order: Sequence[int], batch_size: int, place: Place, skip: int = 0) -> Iterator[Sequence[int]]:
    """This rank's micro-batches of `order`: each global batch is the next batch_size * world_size, cut evenly.

    So the k-th global batch is the same set whatever the number of ranks, as long as its size is. An incomplete last
    one is left out, on all ranks alike.
    """
    together = batch_size * place.world_size
    for first in range(skip * together, len(order) - together + 1, together):
        mine = first + place.rank * batch_size
        yield order[mine : mine + batch_size]


def train_batches(
    questions: Questions, frame: Frame, *, seed: int, epoch: int, batch_size: int, place: Place, skip: int
) -> Iterator[Batch]:
    """This rank's micro-batches of one epoch, without the first `skip`."""
    ordered = questions.epoch(seed, epoch)
    for mine in shards(range(len(ordered)), batch_size, place, skip):
        yield frame.pack([ordered[index] for index in mine])


def synthetic_batches(frame: Frame, *, vocab_size: int, seed: int, batch_size: int, place: Place) -> Iterator[Batch]:
    """Endless random batches in which every row is full: T tokens, answers of 1 to M."""
    random = np.random.default_rng((seed, place.rank))
    shape = (batch_size, frame.choices)
    while True:
        answer_length = random.integers(1, frame.max_answer + 1, shape)
        separator = frame.length - answer_length
        answer = random.integers(1, vocab_size, (*shape, frame.max_answer))
        answer[np.arange(frame.max_answer) >= answer_length[..., None]] = PAD
        arrays = {
            "tokens": random.integers(1, vocab_size, (*shape, frame.length)),
            "separator": separator,
            "blank": random.integers(0, separator),
            "answer": answer,
            "answer_length": answer_length,
            "choices": np.full(batch_size, frame.choices),
        }
        yield {name: torch.from_numpy(array) for name, array in arrays.items()}


def shuffle_answers(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with its answers (part B, and what it has to predict) dealt out at random among its contexts.

    What is left of the data is its statistics: lengths, and which answers there are. A cut answer fits its new row.
    """
    flat = {name: value.flatten(0, 1) for name, value in batch.items() if name != "choices"}
    tokens, separator = flat["tokens"], flat["separator"]
    width = tokens.shape[1]
    source = torch.randperm(len(tokens), generator=generator).to(tokens.device)
    length = torch.minimum(flat["answer_length"][source], width - separator)
    into = torch.arange(width, device=tokens.device)[None] - separator[:, None]
    taken = tokens[source].gather(1, (separator[source][:, None] + into).clamp(0, width - 1))
    taken = torch.where(into < length[:, None], taken, PAD)
    flat |= {
        "tokens": torch.where(into < 0, tokens, taken),
        "answer": flat["answer"][source],
        "answer_length": length,
    }
    return {name: flat[name].view(value.shape) if name in flat else value for name, value in batch.items()}
