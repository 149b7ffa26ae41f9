"""Low-rank adaptation: a frozen product learns by a small one beside it.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022: y = W x + (alpha / r) B A dropout(x), where
A and B have r rows and columns, and B starts at zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Adapter(nn.Module):
    """What is added to one frozen product. Its weights stay float32, whatever the frozen ones are kept in."""

    def __init__(self, inputs: int, outputs: int, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.empty(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(self.dropout(x), self.down), self.up) * self.scale

    @torch.no_grad()
    def initialise(self) -> None:
        """As published and as peft does: nothing is added before the first step."""
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        nn.init.zeros_(self.up)


def freeze(model: nn.Module, kept_in: torch.dtype) -> None:
    """Only adapters learn: all else gets no gradient, and its floating-point weights are kept in `kept_in`.

    Autocast would cast a frozen float32 weight anew in every step. Norms stay float32: they are computed in it.
    """
    adapters = {id(p) for module in model.modules() if isinstance(module, Adapter) for p in module.parameters()}
    norms = {id(p) for module in model.modules() if isinstance(module, nn.LayerNorm) for p in module.parameters()}
    for parameter in model.parameters():
        if id(parameter) in adapters:
            continue
        parameter.requires_grad_(False)
        if id(parameter) not in norms:
            parameter.data = parameter.data.to(kept_in)
