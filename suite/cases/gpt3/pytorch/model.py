"""A decoder in the style of GPT-3: a causal transformer that names the next token.

Brown et al., "Language Models are Few-Shot Learners", NeurIPS 2020; with rotary positions, gated feed-forward layers
and neither biases nor shared embeddings it is the "improved" model of NeMo. Every norm precedes what it feeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from recompute import recomputed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Attention = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(query, key, value, dropout) -> context: all [B, heads, T, head_dim], causal."""

ROTARY_BASE = 10000.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one model; every field is a parameter of case.toml."""

    vocab_size: int
    vocab_multiple: int
    hidden_size: int
    feed_size: int
    num_layers: int
    num_heads: int
    sequence_length: int
    positions: str
    """learned | rotary"""
    rotary_share: float
    feed: str
    """gelu | swiglu"""
    bias: bool
    tied: bool
    dropout: float
    attention_dropout: float
    init_std: float
    position_init: str
    activation_checkpointing: str
    """none | selective | full"""
    loss_chunks: int

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe."""
        return cls(**{field.name: params[field.name] for field in fields(cls)})

    @property
    def words(self) -> int:
        """Rows of the table of words: the vocabulary, rounded up."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def products(self) -> int:
        """Weights of one layer's matrix products."""
        d, f = self.hidden_size, self.feed_size
        return 4 * d * d + (3 if self.feed == "swiglu" else 2) * d * f

    def parameters(self) -> int:
        """How many parameters the model has."""
        d, f = self.hidden_size, self.feed_size
        tables = self.words * (1 if self.tied else 2) + (self.sequence_length if self.positions == "learned" else 0)
        biases = (4 * d + d + (2 if self.feed == "swiglu" else 1) * f) if self.bias else 0
        return tables * d + self.num_layers * (self.products + biases + 4 * d) + 2 * d

    def training_flops(self) -> float:
        """FLOP to train on one sequence, as PaLM counts: T (6 N + 12 L d T), N the weights that multiply.

        Those are all products and the output's scores, not the look-up of tokens. Attention is not halved for its mask.
        """
        weights = self.num_layers * self.products + self.words * self.hidden_size
        scores = 12 * self.num_layers * self.hidden_size * self.sequence_length
        return float(self.sequence_length * (6 * weights + scores))


def standard_attention(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """Causal softmax attention by the fastest kernel that the framework has."""
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which the next product will be computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class Norm(nn.LayerNorm):
    """Layer norm, computed in float32 and handed on in the dtype of the next product: half the memory to move."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(compute_dtype(x))


class Block(nn.Module):
    """Attention, then a feed-forward network; each adds to the stream what it makes of the normed stream."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        d, f, bias = shape.hidden_size, shape.feed_size, shape.bias
        self.head_dim = shape.head_dim
        self.recompute = shape.activation_checkpointing
        self.attention = attention
        self.attention_dropout = shape.attention_dropout
        self.attention_norm = Norm(d)
        # Rows by head, then query, key, value: whole heads stay together where ranks share the rows.
        self.query_key_value = nn.Linear(d, 3 * d, bias=bias)
        self.attention_out = nn.Linear(d, d, bias=bias)
        self.feed_norm = Norm(d)
        self.gate = nn.Linear(d, f, bias=bias) if shape.feed == "swiglu" else None
        self.feed_in = nn.Linear(d, f, bias=bias)
        self.feed_out = nn.Linear(f, d, bias=bias)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, turn: Tensor | None) -> Tensor:
        """[B, T, d] -> the same; `turn` [2, T, turned] are the cosines and sines of rotary positions.

        Recomputation is in here, not around: what is compiled or sharded, a block, then knows of it.
        """
        if self.training and self.recompute != "none":
            return recomputed(self._run, self.recompute, x, turn)
        return self._run(x, turn)

    def _run(self, x: Tensor, turn: Tensor | None) -> Tensor:
        x = x + self.dropout(self._attend(self.attention_norm(x), turn))
        return x + self.dropout(self._feed(self.feed_norm(x)))

    def _attend(self, x: Tensor, turn: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        # Heads are counted by what is there: a rank may hold a share of them.
        parts = self.query_key_value(x).view(batch, length, -1, 3, self.head_dim).transpose(1, 2)
        query, key, value = parts.unbind(3)
        if turn is not None:
            query, key = rotate(query, turn), rotate(key, turn)
        context = self.attention(query, key, value, self.attention_dropout if self.training else 0.0)
        return self.attention_out(context.transpose(1, 2).reshape(batch, length, -1))

    def _feed(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.feed_out(F.gelu(self.feed_in(x), approximate="tanh"))
        return self.feed_out(F.silu(self.gate(x)) * self.feed_in(x))


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """[B, heads, T, head_dim] with the first `turned` numbers of each head turned by their place, by halves."""
    turned = turn.shape[-1]
    cosine, sine = turn.to(x.dtype)
    head, rest = x[..., :turned], x[..., turned:]
    one, other = head.chunk(2, -1)
    return torch.cat((head * cosine + torch.cat((-other, one), -1) * sine, rest), -1)


class Head(nn.Module):
    """The last norm, the scores of the vocabulary, and -log p of what came next."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.chunks = shape.loss_chunks
        self.vocab_size = shape.vocab_size
        self.norm = Norm(shape.hidden_size)
        self.scores = None if shape.tied else nn.Linear(shape.hidden_size, shape.words, bias=False)

    def forward(self, x: Tensor, following: Tensor, words: Tensor | None) -> Tensor:
        """-log p of `following` [B, T], summed in float32 over each sequence: [B].

        With several chunks the scores of one chunk exist at a time, and are computed again for their gradient.
        """
        x = self.norm(x)
        if self.chunks == 1 or not torch.is_grad_enabled():
            return self._judge(x, following, words)
        parts = zip(x.chunk(self.chunks, 1), following.chunk(self.chunks, 1))
        return sum(checkpoint(self._judge, part, asked, words, use_reentrant=False) for part, asked in parts)

    def _judge(self, x: Tensor, following: Tensor, words: Tensor | None) -> Tensor:
        scores = self.scores(x) if self.scores is not None else F.linear(x, words)
        loss = F.cross_entropy(scores.flatten(0, 1).float(), following.flatten(), reduction="none")
        return loss.view(following.shape).sum(1)


class Gpt(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        self.shape = shape
        with torch.device("meta"):  # filled once, below: billions of numbers are not drawn twice
            self.words = nn.Embedding(shape.words, shape.hidden_size)
            learned = shape.positions == "learned"
            self.places = nn.Embedding(shape.sequence_length, shape.hidden_size) if learned else None
            self.blocks = nn.ModuleList(Block(shape, attention) for _ in range(shape.num_layers))
            self.head = Head(shape)
        self.dropout = nn.Dropout(shape.dropout)
        self.to_empty(device="cpu")
        turn = None if learned else rotary_table(shape.sequence_length, round(shape.head_dim * shape.rotary_share))
        self.register_buffer("turn", turn, persistent=False)
        self._initialise()

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        """-log p of the token that follows each [B, T], summed over each sequence: [B], float32."""
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places.weight[: tokens.shape[1]]
        x = self.dropout(x).to(compute_dtype(x))
        for block in self.blocks:
            x = block(x, self.turn)
        return self.head(x, following, self.words.weight if self.shape.tied else None)

    @torch.no_grad()
    def _initialise(self) -> None:
        """Normal weights, smaller where they add to the stream, no biases; or positions that near places share."""
        std = self.shape.init_std
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                adds = name.endswith(("attention_out.weight", "feed_out.weight"))
                parameter.normal_(std=std / math.sqrt(2 * self.shape.num_layers) if adds else std)
            else:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        if self.places is not None and self.shape.position_init == "sinusoid":
            table = rotary_table(self.shape.sequence_length, self.shape.hidden_size)
            self.places.weight.copy_(math.sqrt(2) * std * torch.cat(table[..., ::2].unbind(), -1))


def rotary_table(length: int, width: int) -> Tensor:
    """[2, length, width]: cosines and sines of place x frequency, the frequencies twice over."""
    frequency = ROTARY_BASE ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(length)[:, None] * torch.cat((frequency, frequency))
    return torch.stack((angle.cos(), angle.sin()))
