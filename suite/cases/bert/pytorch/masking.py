"""Hiding words: which places of a sequence are asked for, and what stands there instead."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Words(NamedTuple):
    """The tokens that masking needs to know."""

    mask: int
    """Stands where a word is hidden."""
    first: int
    """The first ordinary word; what lies before are special tokens."""
    count: int
    """The vocabulary's size."""


def hide(
    tokens: np.ndarray, allowed: np.ndarray, counts: np.ndarray, words: Words, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tokens with words hidden, places [N, P], ids [N, P]) of sequences [N, T]; the rest of places and ids is 0.

    Of each sequence, `counts` of the `allowed` places are drawn. 80 % of them become the mask, 10 % keep their word,
    10 % get any word; a sequence with fewer allowed places has them all drawn.
    """
    counts = np.minimum(counts, allowed.sum(1))
    # The allowed places in random order come first, the others after them.
    order = np.where(allowed, random.random(tokens.shape), 2.0).argsort(1)[:, : max(1, int(counts.max()))]
    drawn = np.arange(order.shape[1]) < counts[:, None]
    places = np.sort(np.where(drawn, order, tokens.shape[1]), axis=1)
    places = np.where(drawn, places, 0)
    ids = np.where(drawn, np.take_along_axis(tokens, places, axis=1), 0)
    dice = random.random(places.shape)
    other = random.integers(words.first, words.count, places.shape)
    shown = np.where(dice < 0.8, words.mask, np.where(dice < 0.9, ids, other))
    hidden = tokens.copy()
    row = np.broadcast_to(np.arange(len(tokens))[:, None], places.shape)
    hidden[row[drawn], places[drawn]] = shown[drawn]
    return hidden, places, ids
