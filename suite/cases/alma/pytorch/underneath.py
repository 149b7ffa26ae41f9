"""The model underneath the adapters, where no checkpoint is to be had: trained here, whole, before it is adapted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from data import Example, Frame
from lora import is_adapter, train_all_but_adapters, train_only_adapters
from model import Llama, mean_loss

WARM_UP = 0.1
FLOOR = 0.02
"""Shares of the steps, and of the rate, of the cosine schedule."""


def train_underneath(
    model: Llama, examples: Sequence[Example], frame: Frame, params: Mapping[str, object], seed: int
) -> float:
    """Train all but the adapters for `base_steps` steps in the model's own precision; the last loss.

    One process does it alone. Batches are drawn with replacement by a generator of their own.
    """
    random = np.random.default_rng((seed, params["base_steps"]))
    train_all_but_adapters(model)
    trained = [parameter for name, parameter in model.named_parameters() if not is_adapter(name)]
    optimizer = torch.optim.AdamW(trained, lr=params["base_lr"], weight_decay=0.01, betas=(0.9, 0.98))
    for step in range(params["base_steps"]):
        for group in optimizer.param_groups:
            group["lr"] = params["base_lr"] * _rate(step, params["base_steps"])
        drawn = random.integers(0, len(examples), params["base_batch_size"])
        batch = frame.pack([examples[index] for index in drawn])
        loss = mean_loss(model, {name: value.to(model.words.device) for name, value in batch.items()})
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    train_only_adapters(model)
    return float(loss.detach())


def _rate(step: int, steps: int) -> float:
    warm = WARM_UP * steps
    if step < warm:
        return (step + 1) / (warm + 1)
    return FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm))) / 2
