"""The data of the preset `mini`: plays as a stream of characters, cut into pairs of spans of one length."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from masking import Words, hide
from sequences import Sequences, from_padded

from suite.drivers.events import RunProblem

UNKNOWN, CLS, SEP, MASK, FIRST = 1, 2, 3, 4, 5
"""Special tokens; 0 is padding, and characters begin at FIRST."""
HELD_OUT = 0.08
"""Share of the text, its end, that is only evaluated."""
EVALUATED = 1000
"""Held-out sequences that are asked."""
MASKED = 0.15


def read_text(path: Path) -> str:
    """The text in lower case, with single blanks for any white space."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            return " ".join(file.read().lower().split())
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise RunProblem(
            f"{path} cannot be read as text packed by xz ({error}): take it from the repository"
        ) from error


class Characters:
    """Training and evaluation over one text. Nothing of its last part is ever trained on."""

    def __init__(self, text: str, length: int, vocab_size: int) -> None:
        self.length = length
        cut = round(len(text) * (1 - HELD_OUT))
        letters = sorted(set(text[:cut]))
        needed = FIRST + len(letters)
        if needed > vocab_size:
            raise RunProblem(f"the text needs {needed} tokens, vocab_size is {vocab_size}: raise it")
        self.words = Words(mask=MASK, first=FIRST, count=needed)
        table = {letter: FIRST + i for i, letter in enumerate(letters)}
        encoded = np.array([table.get(letter, UNKNOWN) for letter in text], dtype=np.int64)
        self.train, self.reserved = encoded[:cut], encoded[cut:]
        if len(self.reserved) < 2 * self._span:
            raise RunProblem(
                f"the text has {len(text)} characters, too few for sequences of {length}: use a longer one"
            )

    @property
    def _span(self) -> int:
        """Characters of a sequence: [CLS] and two [SEP] take the other three places."""
        return self.length - 3

    @property
    def predictions(self) -> int:
        """Masked places of each sequence."""
        return round(MASKED * self._span)

    def epoch(self, seed: int, epoch: int, skip: int = 0) -> Iterator[Sequences]:
        """The training text once, cut from a new place, in an order of (seed, epoch), without the first `skip`."""
        random = np.random.default_rng((seed, epoch))
        offset = int(random.integers(self._span))
        made = self._sequences(self.train[offset:], random)
        order = random.permutation(len(made))
        yield made.take(order[skip:])

    def held_out(self, text: np.ndarray | None = None) -> Sequences:
        """The evaluation, of the reserved text unless another is named: the same masks whatever the seed."""
        made = self._sequences(self.reserved if text is None else text, np.random.default_rng(0))
        return made.rows(0, min(EVALUATED, len(made)))

    def _sequences(self, text: np.ndarray, random: np.random.Generator) -> Sequences:
        """Spans one after the other, in two halves; half of them get the second half of another, and class 1."""
        count, half = len(text) // self._span, self._span // 2
        span = text[: count * self._span].reshape(count, self._span)
        swapped = random.random(count) < 0.5
        other = (np.arange(count) + random.integers(1, max(2, count), count)) % count
        second = np.where(swapped[:, None], span[other, half:], span[:, half:])
        tokens = np.full((count, self.length), SEP, dtype=np.int64)
        tokens[:, 0] = CLS
        tokens[:, 1 : half + 1] = span[:, :half]
        tokens[:, half + 2 : -1] = second
        segments = np.broadcast_to(np.arange(self.length) > half + 1, tokens.shape)
        hidden, places, ids = hide(tokens, tokens >= FIRST, np.full(count, self.predictions), self.words, random)
        return from_padded(hidden, segments, np.full(count, self.length), places, ids, swapped)
