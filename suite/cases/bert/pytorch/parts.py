"""The parts of BERT that a vendor may replace, and what they are by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Embed = Callable[[Tensor, Tensor, "Tensor | None", "Tables", float], Tensor]
"""(tokens, segments, positions, tables, dropout) -> dropout(norm(sum of three embeddings)) [R, T, d]: the others are
[R, T]; positions None: every row counts them from 0."""
Attention = Callable[[Tensor, Tensor, Tensor, "Tensor | None", float], Tensor]
"""(query, key, value, bias, dropout) -> context: key and value [R, heads, T, head_dim], the others [R, heads, Q,
head_dim], with Q = T but in the last layer of unshared rows; bias [R, 1, 1 or Q, T], or None."""
SelfAttention = Callable[[Tensor, Tensor, nn.Linear, int, "Tensor | None", float, Attention], tuple[Tensor, Tensor]]
"""(x, asking, product, heads, bias, dropout, attention) -> (context, asking): x [R, T, d], the others [R, Q, d]; asking
is x itself but in the last layer of unshared rows. The weight of `product` makes queries, then keys, then values, each
in heads; `attention` is the slot of that name. What comes back as asking is added to what is made of the context: so a
part can have both its gradients."""
ResidualNorm = Callable[[Tensor, nn.Linear, Tensor, "Norm", float], Tensor]
"""(x, product, residual, norm, dropout) -> norm(residual + dropout(product(x))), all [R, Q or T, d]."""
FeedIn = Callable[[Tensor, nn.Linear], tuple[Tensor, Tensor]]
"""(x, product) -> (gelu(product(x)), x): [R, Q or T, d] to [R, Q or T, feed_size] and, as above, the same."""
Loss = Callable[[Tensor, Tensor, int], Tensor]
"""(scores, labels, absent) -> -log p of each label in float32, 0 where it is `absent`: [N, classes] and [N] to [N]."""


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which the next product will be computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class Norm(nn.LayerNorm):
    """Layer norm, computed in float32 and handed on in the dtype of the next product: half the memory to move."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(compute_dtype(x))


class Tables(NamedTuple):
    """What tokens are looked up in, and the norm of the sum."""

    words: nn.Embedding
    places: nn.Embedding
    segments: nn.Embedding
    norm: Norm


def standard_embedding(
    tokens: Tensor, segments: Tensor, positions: Tensor | None, tables: Tables, dropout: float
) -> Tensor:
    """Where it can, it avoids look-ups: thousands of equal indices into few rows make a slow gradient."""
    place = tables.places.weight[: tokens.shape[1]] if positions is None else tables.places(positions)
    one, other = tables.segments.weight
    x = tables.words(tokens) + place + (one + segments[..., None].to(one.dtype) * (other - one))
    return F.dropout(tables.norm(x), dropout, dropout > 0)


def standard_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """Softmax attention by whichever fused kernel of the framework takes this bias; without one, the fastest."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


def standard_self_attention(
    x: Tensor, asking: Tensor, product: nn.Linear, heads: int, bias: Tensor | None, dropout: float, attention: Attention
) -> tuple[Tensor, Tensor]:
    """The tokens that ask look at all of their row."""
    d = x.shape[2]
    if asking is x:
        packed = product(x).unflatten(2, (3, heads, d // heads)).unbind(2)
    else:
        query = F.linear(asking, product.weight[:d], product.bias[:d]).unflatten(2, (heads, d // heads))
        rest = F.linear(x, product.weight[d:], product.bias[d:]).unflatten(2, (2, heads, d // heads))
        packed = (query, *rest.unbind(2))
    query, key, value = (part.transpose(1, 2) for part in packed)
    return attention(query, key, value, bias, dropout).transpose(1, 2).flatten(2), asking


def standard_residual_norm(x: Tensor, product: nn.Linear, residual: Tensor, norm: Norm, dropout: float) -> Tensor:
    """What a layer does after its attention, and after its feed-forward network."""
    return norm(residual + F.dropout(product(x), dropout, dropout > 0))


def standard_feed_in(x: Tensor, product: nn.Linear) -> tuple[Tensor, Tensor]:
    """The first half of the feed-forward network."""
    return F.gelu(product(x)), x


def standard_loss(scores: Tensor, labels: Tensor, absent: int) -> Tensor:
    """The cross entropy, computed in float32."""
    return F.cross_entropy(scores.float(), labels, ignore_index=absent, reduction="none")


class Parts(NamedTuple):
    """What a vendor may replace: before the layers, of every layer, and the loss of both heads."""

    embedding: Embed = standard_embedding
    attention: Attention = standard_attention
    self_attention: SelfAttention = standard_self_attention
    residual_norm: ResidualNorm = standard_residual_norm
    feed_in: FeedIn = standard_feed_in
    loss: Loss = standard_loss
