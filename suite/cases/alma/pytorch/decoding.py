"""Translating: the likeliest next token, again and again. Keys and values of what was read are kept."""

from __future__ import annotations

import torch
from model import Llama, attend, standard_attention
from torch import Tensor

PATIENCE = 8
"""Tokens between two looks at whether every row has ended: each look waits for the device."""


class Memory:
    """Keys and values of one layer, for the prompt and the tokens to come."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._place: Tensor | None = None
        self._kept: tuple[Tensor, ...] = ()

    def read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention within the prompts, which is remembered."""
        n, heads, length, size = key.shape
        self._kept = tuple(one.new_zeros(n, heads, self._places, size) for one in (key, value))
        for kept, new in zip(self._kept, (key, value)):
            kept[:, :, :length] = new
        return standard_attention(query, key, value)

    def at(self, place: Tensor) -> None:
        """Where the next token of each row [N] stands."""
        self._place = place

    def extend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of one token a row over itself and all before it."""
        row = torch.arange(len(self._place), device=key.device)
        for kept, new in zip(self._kept, (key, value)):
            kept[row, :, self._place] = new[:, :, 0]
        # What a shorter prompt left behind its end is not seen: it is overwritten first.
        seen = torch.arange(self._places, device=key.device)[None] <= self._place[:, None]
        return attend(query, *self._kept, seen[:, None, None])


@torch.no_grad()
def greedy(model: Llama, prompts: Tensor, lengths: Tensor, limit: int, end: int) -> Tensor:
    """[N, up to `limit`] likeliest answers to `prompts` [N, S] of `lengths` [N], padded on the right; then only `end`.

    An answer also ends where the model's positions do.
    """
    room = min(prompts.shape[1] + limit, model.shape.max_positions)
    memories = [Memory(room) for _ in model.layers]
    width = prompts.shape[1]
    x = model.hidden(prompts, model.cosine[:width], model.sine[:width], [one.read for one in memories])
    last = x.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, x.shape[2]))
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    answer = []
    for step in range(limit):
        place = lengths + step
        token = model.scores(last)[:, 0].argmax(-1)
        token = torch.where(ended, end, token)
        answer.append(token)
        ended = ended | (token == end) | (place >= room)
        if (step + 1) % PATIENCE == 0 and bool(ended.all()):
            break
        place = place.clamp(max=room - 1)
        for memory in memories:
            memory.at(place)
        turns = (model.cosine[place][:, None, None], model.sine[place][:, None, None])
        last = model.hidden(token[:, None], *turns, [one.extend for one in memories])
    return torch.stack(answer, 1)
