"""Attention of a sequence to itself and to what was heard, with adapters beside queries and values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from lora import Adapter
from shape import Shape
from torch import Tensor, nn
from torch.nn import functional as F

Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""(query, key, value, causal) -> context, all [B, heads, T, head_dim]; causal: no place looks ahead."""
Pair = tuple[Tensor, Tensor]
"""Keys and values, [B, heads, T, head_dim]."""


def standard_attention(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Softmax attention by the framework's fastest fused kernel: no mask is ever written down."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=causal)


class Attending(nn.Module):
    """What self-attention and cross-attention share: heads, the output product, and an adapter where it learns."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        self.heads = shape.num_heads
        self.attention = attention
        self.out = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.query_adapter = self._adapter(shape)
        self.value_adapter = self._adapter(shape)

    @staticmethod
    def _adapter(shape: Shape) -> Adapter | None:
        d = shape.hidden_size
        if not shape.lora_rank:
            return None
        return Adapter(d, d, rank=shape.lora_rank, alpha=shape.lora_alpha, dropout=shape.lora_dropout)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, d] -> [B, heads, T, head_dim]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, query: Tensor, memory: Pair, causal: bool) -> Tensor:
        """The context of each query, through the output product."""
        return self.out(self.attention(query, *memory, causal).transpose(1, 2).flatten(2))


class SelfAttention(Attending):
    """Attention of a sequence to itself; query, key and value come of one product."""

    def __init__(self, shape: Shape, attention: Attention, *, causal: bool) -> None:
        super().__init__(shape, attention)
        self.causal = causal
        self.query_key_value = nn.Linear(shape.hidden_size, 3 * shape.hidden_size)

    def forward(self, x: Tensor, past: Pair | None = None) -> tuple[Tensor, Pair]:
        """(context, keys and values so far); `past` are those of the places before `x`."""
        query, key, value = self.query_key_value(x).chunk(3, -1)
        query, value = adapted(query, x, self.query_adapter), adapted(value, x, self.value_adapter)
        memory = self.split(key), self.split(value)
        if past is not None:
            memory = torch.cat((past[0], memory[0]), 2), torch.cat((past[1], memory[1]), 2)
        return self.attend(self.split(query), memory, self.causal and past is None), memory


class CrossAttention(Attending):
    """Attention of what is written to what was heard."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__(shape, attention)
        self.query = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.key_value = nn.Linear(shape.hidden_size, 2 * shape.hidden_size)

    def remember(self, heard: Tensor) -> Pair:
        """Keys and values of the encoder's output: the same for all places that are written."""
        key, value = self.key_value(heard).chunk(2, -1)
        return self.split(key), self.split(adapted(value, heard, self.value_adapter))

    def forward(self, x: Tensor, memory: Pair) -> Tensor:
        return self.attend(self.split(adapted(self.query(x), x, self.query_adapter)), memory, False)


def adapted(product: Tensor, x: Tensor, adapter: Adapter | None) -> Tensor:
    """The frozen product of x with what the adapter has learnt."""
    return product if adapter is None else product + adapter(x)
