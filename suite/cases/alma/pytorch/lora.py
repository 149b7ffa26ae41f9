"""Low-rank adaptation (Hu et al., 2021): a frozen matrix W is corrected by B A of small rank; only A and B train."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Projection(nn.Module):
    """Projections of one input under names, as one matrix product; those that are adapted get s B A x on top.

    `parts` are the names with their widths, in the order of the rows of `weight`. The rows of `lora_a` belong to the
    adapted parts in the same order. There are no biases, as Llama has none.
    """

    def __init__(
        self, inputs: int, parts: Mapping[str, int], adapted: Collection[str] = (), rank: int = 0, alpha: float = 0.0
    ) -> None:
        super().__init__()
        self.parts = dict(parts)
        self.adapted = [name for name in parts if name in adapted] if rank else []
        self.weight = nn.Parameter(torch.empty(sum(parts.values()), inputs))
        self.active = bool(self.adapted)
        if self.adapted:
            self.scale = alpha / rank
            self.lora_a = nn.Parameter(torch.empty(rank * len(self.adapted), inputs))
            self.lora_b = nn.ParameterDict({name: torch.empty(parts[name], rank) for name in self.adapted})

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """One tensor a part, in order."""
        plain = F.linear(x, self.weight).split(list(self.parts.values()), dim=-1)
        if not self.active:
            return plain
        low = dict(zip(self.adapted, F.linear(x, self.lora_a).chunk(len(self.adapted), dim=-1)))
        return tuple(
            out + self.scale * F.linear(low[name], self.lora_b[name]) if name in low else out
            for name, out in zip(self.parts, plain)
        )

    @torch.no_grad()
    def initialise_adapters(self) -> None:
        """A uniform as PEFT's, B zero: the correction starts as none."""
        if self.adapted:
            bound = 1 / math.sqrt(self.lora_a.shape[1])
            self.lora_a.uniform_(-bound, bound)
            for matrix in self.lora_b.values():
                matrix.zero_()


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to a correction."""
    return "lora_" in name


def train_only_adapters(model: nn.Module) -> None:
    """Freeze everything else: no gradient, hence no state in the optimizer. The corrections take part again."""
    _use(model, True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))


def train_all_but_adapters(model: nn.Module) -> None:
    """The model underneath, as if it had no corrections."""
    _use(model, False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not is_adapter(name))


@torch.no_grad()
def normal_(weight: Tensor, std: float) -> None:
    """Normal values by way of float32, which is many times faster on the host than drawing halves."""
    weight.copy_(torch.empty(weight.shape, dtype=torch.float32).normal_(std=std))


def _use(model: nn.Module, active: bool) -> None:
    for module in model.modules():
        if isinstance(module, Projection):
            module.active = active and bool(module.adapted)
