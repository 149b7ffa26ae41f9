"""Sequences of tokens: who gets which, what is held out, and how many bytes of text stand behind an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import words
from torch import Tensor

from suite.drivers.events import RunProblem

Batch = dict[str, Tensor]
"""`tokens` [B, T] and `following` [B, T]: the token after each."""
HELD_OUT = 0.08
"""Share of the plays, their end, that is only evaluated."""


class Place(NamedTuple):
    """This process among those that have data of their own."""

    rank: int
    world_size: int


@dataclass(frozen=True)
class Corpus:
    """Tokens to train on, tokens to evaluate, and the bytes of text that each word stands for."""

    train: np.ndarray
    held_out: np.ndarray
    byte_lengths: np.ndarray


def read_plays(text: Path, tokenizer: Path, vocab_size: int) -> Corpus:
    """The corpus of the preset mini. The words were learnt from its training part alone."""
    made, content = words.load(tokenizer, vocab_size), words.read_text(text)
    cut = round(len(content) * (1 - HELD_OUT))
    return Corpus(words.encode(made, content[:cut]), words.encode(made, content[cut:]), words.byte_lengths(made))


def read_tokens(train: Path, held_out: Path, vocab_size: int) -> Corpus:
    """The corpus that prepare.py writes, mapped into memory; byte_lengths.npy lies beside it."""
    parts = [_array(path) for path in (train, held_out, held_out.with_name("byte_lengths.npy"))]
    if len(parts[2]) > vocab_size:
        raise RunProblem(f"{held_out.parent} was made with {len(parts[2])} words, vocab_size is {vocab_size}: raise it")
    return Corpus(*parts)


def _array(path: Path) -> np.ndarray:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RunProblem(f"{path} cannot be read as an array of tokens ({error}): make it by prepare.py") from error
    if found.ndim != 1 or found.dtype.kind != "u":
        raise RunProblem(f"{path} is {found.dtype} of shape {found.shape}, not a row of tokens: make it by prepare.py")
    return found


@dataclass(frozen=True)
class Cutter:
    """Cuts a row of tokens into sequences of `length`; each also holds the token after its last."""

    length: int

    def count(self, tokens: np.ndarray, offset: int = 0) -> int:
        """Whole sequences from `offset` on."""
        return max(0, (len(tokens) - offset - 1) // self.length)

    def cut(self, tokens: np.ndarray, which: np.ndarray, offset: int = 0) -> Batch:
        """The sequences numbered `which`."""
        starts = offset + np.asarray(which, dtype=np.int64) * self.length
        rows = tokens[starts[:, None] + np.arange(self.length + 1)].astype(np.int64)
        pair = torch.from_numpy(rows)
        return {"tokens": pair[:, :-1].contiguous(), "following": pair[:, 1:].contiguous()}

    def batches(
        self, tokens: np.ndarray, *, seed: int, epoch: int, batch_size: int, place: Place, skip: int
    ) -> Iterator[Batch]:
        """This rank's micro-batches of an epoch: the text once, cut from a new place, in an order of (seed, epoch).

        The k-th global batch is the same set of sequences however many ranks share it; an incomplete last one is left
        out, on all ranks alike.
        """
        random = np.random.default_rng((seed, epoch))
        offset = int(random.integers(self.length))
        order = random.permutation(self.count(tokens, offset))
        together = batch_size * place.world_size
        for first in range(skip * together, len(order) - together + 1, together):
            mine = first + place.rank * batch_size
            yield self.cut(tokens, order[mine : mine + batch_size], offset)


def synthetic_batches(*, length: int, vocab_size: int, seed: int, batch_size: int, place: Place) -> Iterator[Batch]:
    """Endless random sequences, no two alike: NeMo's `data_impl: mock`."""
    random = np.random.default_rng((seed, place.rank))
    while True:
        pair = torch.from_numpy(random.integers(0, vocab_size, (batch_size, length + 1)))
        yield {"tokens": pair[:, :-1].contiguous(), "following": pair[:, 1:].contiguous()}


def shuffle_labels(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with its following tokens dealt out among all its places: only their frequencies can be learnt."""
    following = batch["following"]
    order = torch.randperm(following.numel(), generator=generator)
    return batch | {"following": following.flatten()[order].view(following.shape)}
