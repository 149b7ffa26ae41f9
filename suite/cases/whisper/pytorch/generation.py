"""Greedy writing: the likeliest token, again and again. Keys and values of what is written are kept, not made anew."""

from __future__ import annotations

import torch
from model import Whisper
from torch import Tensor

UNKNOWN = -1
"""What is written where a score is no number: never a right token."""


@torch.no_grad()
def write(model: Whisper, features: Tensor, prompt: list[int], limit: int) -> Tensor:
    """[B, up to limit] tokens after `prompt`; what follows the first end token means nothing.

    Ends early once every sample has ended, which the host asks after each token.
    """
    heard = model.encode(features)
    memories = [layer.cross.remember(heard) for layer in model.decoder]
    pasts = [None] * len(model.decoder)
    tokens = torch.tensor([prompt], device=features.device).expand(len(features), -1)
    written, place = [], 0
    ended = torch.zeros(len(features), dtype=torch.bool, device=features.device)
    while len(written) < limit and place + tokens.shape[1] <= model.shape.max_labels:
        x = model.embed(tokens.clamp(min=0), place)
        for number, layer in enumerate(model.decoder):
            x, pasts[number] = layer.write(x, memories[number], pasts[number])
        place += tokens.shape[1]
        scores = model.scores(x[:, -1:])[:, 0]
        best = scores.argmax(-1).masked_fill(scores.isnan().any(-1), UNKNOWN)
        written.append(best)
        ended |= best == model.shape.end_token
        if bool(ended.all()):
            break
        tokens = best[:, None]
    return torch.stack(written, 1)


def until_end(tokens: list[int], end: int) -> list[int]:
    """The tokens before the first end."""
    return tokens[: tokens.index(end)] if end in tokens else tokens
