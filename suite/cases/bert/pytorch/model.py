"""BERT: a transformer that reads a pair of segments in both directions, and two heads that ask what it understood.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019. One head
says which words stood at masked places, scored over the vocabulary there and nowhere else; the other says whether the
second segment follows the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from parts import Norm, Parts, Tables, compute_dtype
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PAD = 0
"""Token of what is left of a row, and label of a place where nothing was masked."""
ABSENT = -1
"""Label of a sequence that only fills the shape of a batch."""
MULTIPLE = 8
"""The table of words has a multiple of this many rows: matrix units take no other width at full speed."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one BERT; every field is a parameter of case.toml."""

    vocab_size: int
    hidden_size: int
    feed_size: int
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

    @property
    def words(self) -> int:
        """Rows of the table of words: the vocabulary, rounded up."""
        return -(-self.vocab_size // MULTIPLE) * MULTIPLE

    def parameters(self) -> int:
        """How many parameters the model has; the output is tied to the table of words."""
        d, f = self.hidden_size, self.feed_size
        embeddings = (self.words + self.max_positions + 2) * d + 2 * d
        layers = self.num_layers * (4 * d * d + 4 * d + 2 * d * f + d + f + 4 * d)
        heads = (d * d + d) + 2 * (d + 1) + (d * d + 3 * d) + self.words
        return embeddings + layers + heads

    def training_flops(self, tokens: float, pairs: float, predicted: float, shared: bool = False) -> float:
        """FLOP to train on one sequence: three times the forward pass, two for each multiply-accumulate.

        `tokens` pass through the layers, `pairs` of query and key are scored, `predicted` places are asked for. Where
        rows are not `shared`, the last layer is computed at those places and at the first one only: not counted is what
        is not computed.
        """
        d, f = self.hidden_size, self.feed_size
        queried = tokens if shared else predicted + 1
        layer = (8 * d * d + 4 * d * f) * tokens + 4 * d * pairs
        last = 4 * d * d * (tokens + queried) + 4 * d * f * queried + 4 * d * pairs * queried / tokens
        heads = (2 * d * d + 2 * d * self.vocab_size) * predicted + 2 * d * d + 4 * d
        return 3 * ((self.num_layers - 1) * layer + last + heads)


class Judged(NamedTuple):
    """What the two heads make of a batch."""

    masked_loss: Tensor
    """[B, P] -log p of what was masked, float32; 0 where nothing was."""
    next_loss: Tensor
    """[B] -log p of the right answer to "does it follow", float32; 0 for an absent sequence."""
    masked_right: Tensor | None
    """[B, P] the likeliest word is the right one; only where the model evaluates."""
    next_right: Tensor | None


def visibility(owner: Tensor, shared: bool, dtype: torch.dtype) -> Tensor:
    """0 where a query may look and -inf elsewhere, from the sequence that owns each place [R, T]; 0 is padding.

    Where rows are `shared`, a token sees its own sequence: [R, 1, T, T]. Else one line a row hides the padding from all
    its queries: [R, 1, 1, T]. Padding sees something too, or a softmax over nothing would spread its NaN.
    """
    seen = owner[:, :, None] == owner[:, None, :] if shared else (owner != PAD)[:, None, :]
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, float("-inf"))[:, None]


class Layer(nn.Module):
    """Self-attention, then a feed-forward network. Each is added to its input, and a norm follows the sum."""

    def __init__(self, shape: Shape, parts: Parts) -> None:
        super().__init__()
        d = shape.hidden_size
        self.heads = shape.num_heads
        self.parts = parts
        self.attention_dropout = shape.attention_dropout
        self.dropout = shape.dropout
        self.query_key_value = nn.Linear(d, 3 * d)
        self.attention_out = nn.Linear(d, d)
        self.attention_norm = Norm(d, eps=1e-12)
        self.feed_in = nn.Linear(d, shape.feed_size)
        self.feed_out = nn.Linear(shape.feed_size, d)
        self.feed_norm = Norm(d, eps=1e-12)

    def forward(self, x: Tensor, bias: Tensor | None, asked: Tensor | None = None) -> Tensor:
        """[R, T, d] of the same; or [R, Q, d] at `asked` [R, Q], places counted through all rows, each in its row."""
        y = x if asked is None else x.flatten(0, 1)[asked]
        dropout = self.dropout if self.training else 0.0
        attention_dropout = self.attention_dropout if self.training else 0.0
        context, y = self.parts.self_attention(
            x, y, self.query_key_value, self.heads, bias, attention_dropout, self.parts.attention
        )
        y = self.parts.residual_norm(context, self.attention_out, y, self.attention_norm, dropout)
        inner, y = self.parts.feed_in(y, self.feed_in)
        return self.parts.residual_norm(inner, self.feed_out, y, self.feed_norm, dropout)


class Bert(nn.Module):
    """A batch of rows in, the judgement of both heads out."""

    def __init__(self, shape: Shape, parts: Parts | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.parts = parts or Parts()
        d = shape.hidden_size
        self.words = nn.Embedding(shape.words, d)
        self.positions = nn.Embedding(shape.max_positions, d)
        self.segments = nn.Embedding(2, d)
        self.embedding_norm = Norm(d, eps=1e-12)
        self.layers = nn.ModuleList(Layer(shape, self.parts) for _ in range(shape.num_layers))
        self.pooler = nn.Linear(d, d)
        self.next_sentence = nn.Linear(d, 2)
        self.masked_dense = nn.Linear(d, d)
        self.masked_norm = Norm(d, eps=1e-12)
        self.masked_bias = nn.Parameter(torch.zeros(shape.words))
        self._initialise()

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor,
        first: Tensor,
        masked_places: Tensor,
        masked_ids: Tensor,
        next_sentence: Tensor,
        positions: Tensor | None = None,
        owner: Tensor | None = None,
    ) -> Judged:
        """`tokens` `segments` [R, T]; of B sequences, the place of the `first` token [B] and the masked ones [B, P].

        Places count through all rows, as in a flattened [R * T]. `positions` [R, T] are given where sequences share
        rows, `owner` [R, T] also where rows have padding: without them every row is one full sequence.
        """
        x = self._embed(tokens, segments, positions)
        bias = None if owner is None else visibility(owner, positions is not None, compute_dtype(x))
        asked = torch.cat((first[:, None], masked_places), 1)
        *layers, last = self.layers
        for layer in layers:
            x = self._through(layer, x, bias)
        if positions is None:  # no other place of the last layer is ever looked at
            x = self._through(last, x, bias, asked)
        else:
            x = self._through(last, x, bias).flatten(0, 1)[asked]
        masked_loss, masked_right = self._judge(self._masked_scores(x[:, 1:].flatten(0, 1)), masked_ids, PAD)
        next_scores = self.next_sentence(torch.tanh(self.pooler(x[:, 0])))
        next_loss, next_right = self._judge(next_scores, next_sentence, ABSENT)
        return Judged(masked_loss, next_loss, masked_right, next_right)

    def _through(self, layer: Layer, *inputs: Tensor | None) -> Tensor:
        if self.shape.activation_checkpointing and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)

    def _embed(self, tokens: Tensor, segments: Tensor, positions: Tensor | None) -> Tensor:
        tables = Tables(self.words, self.positions, self.segments, self.embedding_norm)
        dropout = self.shape.dropout if self.training else 0.0
        return self.parts.embedding(tokens, segments, positions, tables, dropout)

    def _masked_scores(self, x: Tensor) -> Tensor:
        """Scores of the vocabulary for each [places, d]."""
        return F.linear(self.masked_norm(F.gelu(self.masked_dense(x))), self.words.weight, self.masked_bias)

    def _judge(self, scores: Tensor, labels: Tensor, absent: int) -> tuple[Tensor, Tensor | None]:
        """(loss, whether the best score is the right one) in the shape of `labels`; 0 and False where `absent`."""
        loss = self.parts.loss(scores, labels.flatten(), absent)
        if self.training:
            return loss.view(labels.shape), None
        # A score that is not a number is never right, whatever argmax makes of it.
        right = (scores.argmax(-1) == labels.flatten()) & (labels.flatten() != absent) & scores.isfinite().all(-1)
        return loss.view(labels.shape), right.view(labels.shape)

    def _initialise(self) -> None:
        """Normal weights, no biases, as published; or positions that near places share from the start."""
        std = self.shape.init_std
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if self.shape.position_init == "sinusoid":
            _sinusoid_(self.positions.weight, std)


@torch.no_grad()
def _sinusoid_(weight: Tensor, std: float) -> None:
    """Sines and cosines of standard deviation `std`: near places start alike, which a short training cannot learn."""
    count, d = weight.shape
    angle = torch.arange(count)[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
    weight[:, 0::2] = math.sqrt(2) * std * torch.sin(angle)
    weight[:, 1::2] = math.sqrt(2) * std * torch.cos(angle)
