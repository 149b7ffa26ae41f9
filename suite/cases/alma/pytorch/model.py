"""Llama (Touvron et al., 2023): a decoder with RMSNorm, rotary positions, grouped queries and a gated feed-forward.

A sequence is a prompt, of which nothing is asked, and an answer, of which every token is. `forward` gives the answer's
loss; the vocabulary is scored at the answer's places only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from lora import Projection, is_adapter, normal_, train_only_adapters
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query [N, heads, T, head_dim], key, value [N, kv_heads, T, head_dim]) -> context, shaped as the query."""

IGNORED = -100
"""A label that only fills the shape."""
GROUPED = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 5)
"""Whether this torch lets heads share keys inside the fused kernel."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one Llama with its adapters; every field is a parameter of case.toml."""

    vocab_size: int
    hidden_size: int
    feed_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    max_positions: int
    rope_base: float
    norm_eps: float
    init_std: float
    tied_words: bool
    activation_checkpointing: bool
    lora_rank: int
    lora_alpha: float
    lora_targets: tuple[str, ...]

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe."""
        values = {field.name: params[field.name] for field in fields(cls)}
        return cls(**values | {"lora_targets": tuple(values["lora_targets"])})

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_heads

    @property
    def projections(self) -> dict[str, tuple[int, dict[str, int]]]:
        """The matrix products of a layer: name -> (inputs, width of each part). Parts have the published names."""
        d, f, kv = self.hidden_size, self.feed_size, self.num_kv_heads * self.head_dim
        return {
            "attention_in": (d, {"q_proj": d, "k_proj": kv, "v_proj": kv}),
            "attention_out": (d, {"o_proj": d}),
            "feed_in": (d, {"gate_proj": f, "up_proj": f}),
            "feed_out": (f, {"down_proj": d}),
        }


def standard_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal softmax attention by the framework's fastest fused kernel."""
    return attend(query, key, value, None)


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax attention where `visible` lets it through; None: no place looks ahead. Heads share keys in groups."""
    groups = query.shape[1] // key.shape[1]
    grouped = {}
    if groups > 1 and GROUPED:
        grouped = {"enable_gqa": True}
    elif groups > 1:
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=visible, is_causal=visible is None and query.shape[2] > 1, **grouped
    )


class RMSNorm(nn.Module):
    """Scaled to a root mean square of one, in float32, then by a weight for each unit."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).to(x.dtype)


class Layer(nn.Module):
    """Attention, then a gated feed-forward network, each on the normalised stream and added to it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.attention_norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.feed_norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        for name, (inputs, parts) in shape.projections.items():
            adapted = set(parts) & set(shape.lora_targets)
            self.add_module(name, Projection(inputs, parts, adapted, shape.lora_rank, shape.lora_alpha))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, attention: Attend) -> Tensor:
        query, key, value = map(self._heads, self.attention_in(self.attention_norm(x)))
        context = attention(rotated(query, cosine, sine), rotated(key, cosine, sine), value)
        x = x + self.attention_out(context.transpose(1, 2).flatten(2))[0]
        gate, up = self.feed_in(self.feed_norm(x))
        return x + self.feed_out(F.silu(gate) * up)[0]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)


class Llama(nn.Module):
    """Tokens in, the loss of their answers out. Made without values: `initialise` gives them."""

    def __init__(self, shape: Shape, attention: Attend = standard_attention) -> None:
        super().__init__()
        self.shape = shape
        self.attention = attention
        self.words = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.head = None if shape.tied_words else nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))
        for name in ("cosine", "sine"):
            self.register_buffer(name, torch.empty(shape.max_positions, shape.head_dim), persistent=False)

    def forward(self, tokens: Tensor, first: Tensor, labels: Tensor) -> Tensor:
        """-log p of each of `labels` [N, P], in float32; 0 where IGNORED. Label k follows place `first` [N] + k.

        P as long as the sequence asks at every place, from the first on.
        """
        length = tokens.shape[1]
        attends = [self.attention] * len(self.layers)
        x = self.hidden(tokens, self.cosine[:length], self.sine[:length], attends)
        if labels.shape[1] < length:
            place = first[:, None] + torch.arange(labels.shape[1], device=tokens.device)
            x = x.gather(1, place.clamp(max=length - 1)[..., None].expand(-1, -1, x.shape[2]))
        scores = self.scores(x).float().flatten(0, 1)
        losses = F.cross_entropy(scores, labels.flatten(), ignore_index=IGNORED, reduction="none")
        return losses.view(labels.shape)

    def hidden(self, tokens: Tensor, cosine: Tensor, sine: Tensor, attends: Sequence[Attend]) -> Tensor:
        """[N, T, hidden] before the last norm; each layer by its own attention."""
        # The stream is kept in the dtype of the products: half the traffic of float32.
        x = F.embedding(tokens, self.words).to(_compute_dtype(self.words))
        for layer, attention in zip(self.layers, attends):
            if self.shape.activation_checkpointing and self.training:
                x = checkpoint(layer, x, cosine, sine, attention, use_reentrant=False)
            else:
                x = layer(x, cosine, sine, attention)
        return x

    def scores(self, x: Tensor) -> Tensor:
        """Of the vocabulary, for states as `hidden` gives them."""
        return F.linear(self.norm(x), self.words if self.head is None else self.head)

    def initialise(self) -> None:
        """Normal matrices, norms of one, adapters that change nothing."""
        for module in self.modules():
            if isinstance(module, Projection):
                normal_(module.weight, self.shape.init_std)
            elif isinstance(module, RMSNorm):
                nn.init.ones_(module.weight)
        for matrix in (self.words, self.head):
            if matrix is not None:
                normal_(matrix, self.shape.init_std)
        self.initialise_adapters()

    def initialise_adapters(self) -> None:
        """The adapters, and the tables of positions: all that no checkpoint holds."""
        for module in self.modules():
            if isinstance(module, Projection):
                module.initialise_adapters()
        self._fill_positions()

    @torch.no_grad()
    def _fill_positions(self) -> None:
        """The tables of rotary positions."""
        size = self.shape.head_dim
        rates = self.shape.rope_base ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(self.shape.max_positions)[:, None] * torch.cat([rates, rates])
        self.cosine.copy_(angles.cos())
        self.sine.copy_(angles.sin())


def make(shape: Shape, attention: Attend, frozen: torch.dtype, fill: Callable[[Llama], None]) -> Llama:
    """A model with the values that `fill` gives it; with adapters, the rest is frozen and its matrices are `frozen`.

    Made without memory first: seven billion parameters are allocated once, in the dtype in which they stay.
    """
    with torch.device("meta"):
        model = Llama(shape, attention)
    if shape.lora_rank:
        train_only_adapters(model)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and not is_adapter(name):
                parameter.data = parameter.data.to(frozen)
    model = model.to_empty(device="cpu")
    fill(model)
    return model


def mean_loss(model: Callable[..., Tensor], batch: Mapping[str, Tensor]) -> Tensor:
    """The mean over examples of the mean -log p of an answer's tokens: one gradient however ranks share a batch."""
    losses = model(batch["tokens"], batch["first"], batch["labels"])
    return (losses.sum(1) / (batch["labels"] >= 0).sum(1)).mean()


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions: unit i turns with unit i + half by the angle of its place."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cosine + turned * sine).to(x.dtype)


def _compute_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of matrix products: autocast's where it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
