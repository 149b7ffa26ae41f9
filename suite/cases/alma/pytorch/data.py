"""Examples laid into rows, and who gets which: what all data sets of this case have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from model import IGNORED
from torch import Tensor

PAD = 0
Batch = dict[str, Tensor]
"""tokens [B, T]; first [B], the last place of the prompt; labels [B, P], the answer; length [B], its real tokens."""


class Example(NamedTuple):
    """A prompt and what should follow it, closed by an end token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """What passes through the model: the end token is asked for, and never read."""
        return len(self.prompt) + len(self.answer) - 1


class Place(NamedTuple):
    """This process among all that have data of their own."""

    rank: int
    world_size: int


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The shape of a batch."""

    length: int
    """T, places of a row."""
    max_answer: int
    """P, places of an answer."""
    pad_multiple: int
    """0: rows always have T places. Else as many as the batch's longest example needs, rounded up to this."""

    def cut(self, prompt: Sequence[int], answer: Sequence[int]) -> Example:
        """The example with its answer cut to P and its prompt, from the left, to what is left of T."""
        answer = tuple(answer[: self.max_answer])
        room = self.length - len(answer) + 1
        return Example(tuple(prompt[max(len(prompt) - room, 0) :]), answer)

    def pack(self, examples: Sequence[Example]) -> Batch:
        """One batch, padded on the right, where no real token looks."""
        width = self._rounded(self.length, max(one.tokens for one in examples))
        asked = self._rounded(self.max_answer, max(len(one.answer) for one in examples))
        tokens = np.full((len(examples), width), PAD, dtype=np.int64)
        labels = np.full((len(examples), asked), IGNORED, dtype=np.int64)
        for row, (prompt, answer) in enumerate(examples):
            tokens[row, : len(prompt)] = prompt
            tokens[row, len(prompt) : len(prompt) + len(answer) - 1] = answer[:-1]
            labels[row, : len(answer)] = answer
        first = np.array([len(one.prompt) - 1 for one in examples], dtype=np.int64)
        length = np.array([one.tokens for one in examples], dtype=np.int64)
        named = {"tokens": tokens, "first": first, "labels": labels, "length": length}
        return {name: torch.from_numpy(array) for name, array in named.items()}

    def _rounded(self, most: int, longest: int) -> int:
        return min(most, -(-longest // self.pad_multiple) * self.pad_multiple) if self.pad_multiple else most


def unpack(batch: Batch) -> list[Example]:
    """The examples of a packed batch."""
    answers = [tuple(token for token in row if token != IGNORED) for row in batch["labels"].tolist()]
    rows = zip(batch["tokens"].tolist(), batch["first"].tolist(), answers)
    return [Example(tuple(tokens[: first + 1]), answer) for tokens, first, answer in rows]


def mean_work(examples: Sequence[Example]) -> tuple[float, float, float]:
    """(tokens, pairs of query and key that the mask lets through, asked tokens) of a mean example."""
    tokens = np.array([one.tokens for one in examples], dtype=np.float64)
    asked = np.array([len(one.answer) for one in examples], dtype=np.float64)
    return float(tokens.mean()), float((tokens * (tokens + 1) / 2).mean()), float(asked.mean())


def train_batches(
    examples: Sequence[Example], frame: Frame, *, seed: int, epoch: int, batch_size: int, place: Place, skip: int
) -> Iterator[Batch]:
    """This rank's micro-batches of one epoch: each global batch is the next of the epoch's order, cut evenly.

    So the k-th global batch is the same set whatever the number of ranks, as long as its size is. An incomplete last
    one is left out, on all ranks alike.
    """
    order = np.random.default_rng((seed, epoch)).permutation(len(examples))
    together = batch_size * place.world_size
    for first in range(skip * together, len(order) - together + 1, together):
        mine = first + place.rank * batch_size
        yield frame.pack([examples[index] for index in order[mine : mine + batch_size]])


def synthetic_batches(frame: Frame, *, vocab_size: int, seed: int, batch_size: int, place: Place) -> Iterator[Batch]:
    """Endless random batches of full rows, of which the last P tokens are asked for."""
    random = np.random.default_rng((seed, place.rank))
    first = frame.length - frame.max_answer
    while True:
        rows = random.integers(3, vocab_size, (batch_size, frame.length + 1))
        arrays = {
            "tokens": rows[:, :-1].copy(),
            "first": np.full(batch_size, first),
            "labels": rows[:, first + 1 :].copy(),
            "length": np.full(batch_size, frame.length),
        }
        yield {name: torch.from_numpy(array) for name, array in arrays.items()}


def shuffle_answers(batch: Batch, frame: Frame, generator: torch.Generator) -> Batch:
    """The batch with its answers dealt out at random among its prompts. What is left is which answers there are."""
    examples = unpack(batch)
    dealt = torch.randperm(len(examples), generator=generator).tolist()
    return frame.pack([frame.cut(one.prompt, examples[other].answer) for one, other in zip(examples, dealt)])
