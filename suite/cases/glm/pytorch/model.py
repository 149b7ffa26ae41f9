"""GLM: one transformer that reads a context in both directions (part A) and writes what is missing in it (part B).

Du et al., "GLM: General Language Model Pretraining with Autoregressive Blank Infilling", ACL 2022. A sequence is part
A, in which a blank stands for a missing span, followed by part B, a start token and the span. Tokens of A see all of
A, tokens of B see A and what precedes them in B. Two positions mark a token: where it stands in A (for B: where the
blank is), and how far into the span it is (for A: 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""(query, key, value, bias, dropout) -> context: all [N, heads, T, head_dim], bias [N, 1, T, T] for the scores."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one GLM; every field is a parameter of case.toml."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    dropout: float
    attention_dropout: float
    init_std: float
    position_init: str
    activation_checkpointing: bool

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe."""
        return cls(**{field.name: params[field.name] for field in fields(cls)})

    def parameters(self) -> int:
        """How many parameters the model has: embeddings, 12 d^2 + 13 d a layer, the last norm; the output is tied."""
        d = self.hidden_size
        embeddings = (self.vocab_size + 2 * (self.max_positions + 1)) * d
        return embeddings + self.num_layers * (12 * d * d + 13 * d) + 2 * d

    def training_flops(self, tokens: float, pairs: float, predicted: float) -> float:
        """FLOP to train on one sequence: three times the forward pass, two for each multiply-accumulate.

        `tokens` pass through the layers, `pairs` of query and key are scored, at `predicted` places the vocabulary is.
        """
        d = self.hidden_size
        layer = 24 * d * d * tokens + 4 * d * pairs
        return 3 * (self.num_layers * layer + 2 * d * self.vocab_size * predicted)


def standard_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> Tensor:
    """Softmax attention by whichever fused kernel of the framework takes an additive bias."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


def prefix_bias(separator: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """[N, 1, length, length]: 0 where a query may look, -inf elsewhere; part B starts at `separator` [N].

    Padding needs no mask of its own: it comes last, where no real token looks. One dense tensor of a fixed shape, made
    once a forward pass in the dtype of the scores and shared by layers and heads, keeps every layer on a fused kernel.
    """
    place = torch.arange(length, device=separator.device)
    causal = place[None, :] <= place[:, None]
    visible = causal[None] | (place[None, None, :] < separator[:, None, None])
    bias = torch.zeros(visible.shape, dtype=dtype, device=separator.device)
    return bias.masked_fill_(~visible, float("-inf"))[:, None]


def two_positions(separator: Tensor, blank: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """([N, length], [N, length]): the place in A, and the place in the span (0 in A)."""
    place = torch.arange(length, device=separator.device)[None]
    in_span = (place - separator[:, None] + 1).clamp(min=0)
    in_context = torch.where(in_span > 0, blank[:, None], place)
    return in_context, in_span


class Layer(nn.Module):
    """Pre-norm transformer layer: self-attention, then a feed-forward network four times as wide."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        d = shape.hidden_size
        self.heads = shape.num_heads
        self.attention = attention
        self.attention_dropout = shape.attention_dropout
        self.attention_norm = nn.LayerNorm(d)
        self.query_key_value = nn.Linear(d, 3 * d)
        self.attention_out = nn.Linear(d, d)
        self.feed_norm = nn.LayerNorm(d)
        self.feed_in = nn.Linear(d, 4 * d)
        self.feed_out = nn.Linear(4 * d, d)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.dropout(self.attention_out(self._attend(self.attention_norm(x), bias)))
        hidden = F.gelu(self.feed_in(self.feed_norm(x)), approximate="tanh")
        return x + self.dropout(self.feed_out(hidden))

    def _attend(self, x: Tensor, bias: Tensor) -> Tensor:
        n, length, d = x.shape
        heads = self.query_key_value(x).view(n, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        dropout = self.attention_dropout if self.training else 0.0
        context = self.attention(query, key, value, bias, dropout)
        return context.transpose(1, 2).reshape(n, length, d)


class GLM(nn.Module):
    """Sequences in, log-probabilities of their answers out."""

    def __init__(self, shape: Shape, attention: Attention = standard_attention) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.positions = nn.Embedding(shape.max_positions + 1, shape.hidden_size)
        self.span_positions = nn.Embedding(shape.max_positions + 1, shape.hidden_size)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(Layer(shape, attention) for _ in range(shape.num_layers))
        self.norm = nn.LayerNorm(shape.hidden_size)
        self._initialise()

    def forward(self, tokens: Tensor, separator: Tensor, blank: Tensor, answer: Tensor) -> Tensor:
        """log p of each token of `answer` [N, M], in float32. `tokens` [N, T]; part B starts at `separator` [N].

        The vocabulary is scored at the M places of part B only: nothing else is ever asked for, and in a large
        vocabulary the scores of all T places would be the biggest tensor of the model.
        """
        length = tokens.shape[1]
        in_context, in_span = two_positions(separator, blank, length)
        x = self.dropout(self.words(tokens) + self.positions(in_context) + self.span_positions(in_span))
        bias = prefix_bias(separator, length, _score_dtype(x))
        for layer in self.layers:
            if self.shape.activation_checkpointing and self.training:
                x = checkpoint(layer, x, bias, use_reentrant=False)
            else:
                x = layer(x, bias)
        span = torch.arange(answer.shape[1], device=tokens.device)[None]
        place = (separator[:, None] + span).clamp(max=length - 1)
        x = x.gather(1, place[..., None].expand(-1, -1, x.shape[2]))
        scores = F.linear(self.norm(x), self.words.weight)
        return -F.cross_entropy(scores.float().flatten(0, 1), answer.flatten(), reduction="none").view(answer.shape)

    def _initialise(self) -> None:
        """Normal weights; those of projections into the residual stream smaller, the more layers there are."""
        std = self.shape.init_std
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("attention_out.weight", "feed_out.weight"))
                nn.init.normal_(parameter, std=std / math.sqrt(2 * self.shape.num_layers) if residual else std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if self.shape.position_init == "sinusoid":
            _sinusoid_(self.positions.weight, std)


def _score_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which attention scores will be computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@torch.no_grad()
def _sinusoid_(weight: Tensor, std: float) -> None:
    """Sines and cosines of standard deviation `std`: near places start alike, which a short training cannot learn."""
    count, d = weight.shape
    angle = torch.arange(count)[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
    weight[:, 0::2] = math.sqrt(2) * std * torch.sin(angle)
    weight[:, 1::2] = math.sqrt(2) * std * torch.cos(angle)
