"""ViViT: a transformer over tubelets, small boxes of a clip that last a few frames.

Arnab et al., "ViViT: A Video Vision Transformer", ICCV 2021. Two of its models: `joint` (model 1), in which every
tubelet attends to every other, and `factorised` (model 2), in which each moment is read by itself and a second, short
encoder reads the moments. Both are read off at a class token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from suite.drivers.events import RunProblem

ATTENTIONS = ("joint", "factorised")
MULTIPLES = (("num_frames", "tubelet_frames"), ("image_size", "tubelet_size"), ("hidden_size", "num_heads"))

Attention = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(query [B, heads, Q, head_dim], key, value [B, heads, T, head_dim], dropout) -> context, shaped as the query."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one ViViT; every field is a parameter of case.toml."""

    attention: str
    num_frames: int
    image_size: int
    tubelet_frames: int
    tubelet_size: int
    pixel_mean: tuple[float, ...]
    pixel_std: tuple[float, ...]
    hidden_size: int
    feed_size: int
    num_layers: int
    temporal_layers: int
    num_heads: int
    num_classes: int
    dropout: float
    attention_dropout: float
    init_std: float
    activation_checkpointing: bool

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe. Raises RunProblem where they contradict each other."""
        lists = {name: tuple(params[name]) for name in ("pixel_mean", "pixel_std")}
        shape = cls(**{field.name: params[field.name] for field in fields(cls)} | lists)
        if shape.attention not in ATTENTIONS:
            raise RunProblem(
                f"attention = {shape.attention!r} is not one of {', '.join(ATTENTIONS)}: choose one of them"
            )
        for whole, part in MULTIPLES:
            if params[whole] % params[part]:
                raise RunProblem(
                    f"{whole} = {params[whole]} is no multiple of {part} = {params[part]}: change one of them"
                )
        return shape

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return len(self.pixel_mean)

    @property
    def moments(self) -> int:
        """Tubelets after each other."""
        return self.num_frames // self.tubelet_frames

    @property
    def places(self) -> int:
        """Tubelets beside each other."""
        return (self.image_size // self.tubelet_size) ** 2

    @property
    def tubelet_values(self) -> int:
        """Numbers of a tubelet."""
        return self.tubelet_frames * self.tubelet_size**2 * self.channels

    def parameters(self) -> int:
        """How many parameters the model has."""
        d, f = self.hidden_size, self.feed_size
        layer = 4 * d * d + 2 * d * f + f + 9 * d
        if self.attention == "joint":
            encoders = self.num_layers * layer + d + (self.moments * self.places + 1) * d
        else:
            encoders = (self.num_layers + self.temporal_layers) * layer + 2 * d + (self.places + self.moments + 2) * d
        return (self.tubelet_values + 1) * d + encoders + 2 * d + (d + 1) * self.num_classes

    def training_flops(self) -> float:
        """FLOP of every product that trains on one clip, two for each multiply-accumulate.

        The backward pass has two products for each of the forward pass, but nobody needs the gradient of the pixels.
        """
        tubelets = 2 * self.moments * self.places * self.tubelet_values * self.hidden_size
        if self.attention == "joint":
            encoders = self._encoder_flops(self.moments * self.places + 1, self.num_layers)
        else:
            encoders = self.moments * self._encoder_flops(self.places + 1, self.num_layers)
            encoders += self._encoder_flops(self.moments + 1, self.temporal_layers)
        return 2 * tubelets + 3 * (encoders + 2 * self.hidden_size * self.num_classes)

    def _encoder_flops(self, tokens: int, layers: int) -> int:
        """FLOP of an encoder's forward pass over one sequence; its last layer answers for the class token alone."""
        d, f = self.hidden_size, self.feed_size

        def layer(queries: int) -> int:
            return 4 * d * d * (queries + tokens) + 4 * d * queries * tokens + 4 * d * f * queries

        return (layers - 1) * layer(tokens) + layer(1)


def standard_attention(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """Softmax attention by whichever fused kernel of the framework is the fastest."""
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)


class Norm(nn.LayerNorm):
    """Layer norm, computed in float32 and handed on in the dtype of the next product: half the memory to move."""

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        return super().forward(x).to(dtype)


class Layer(nn.Module):
    """Self-attention, then a feed-forward network; each reads a norm of its input and is added to it."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        d = shape.hidden_size
        self.heads = shape.num_heads
        self.attention = attention
        self.attention_dropout = shape.attention_dropout
        self.attention_norm = Norm(d, eps=1e-6)
        self.query_key_value = nn.Linear(d, 3 * d)
        self.attention_out = nn.Linear(d, d)
        self.feed_norm = Norm(d, eps=1e-6)
        self.feed_in = nn.Linear(d, shape.feed_size)
        self.feed_out = nn.Linear(shape.feed_size, d)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, class_only: bool = False) -> Tensor:
        """[B, T, d] -> the same; or the class token alone, [B, 1, d], which is all that is asked of a last layer."""
        kept = x[:, :1] if class_only else x
        kept = kept + self.dropout(self._attend(self.attention_norm(x), class_only))
        feed = F.gelu(self.feed_in(self.feed_norm(kept)), approximate="tanh")
        return kept + self.dropout(self.feed_out(feed))

    def _attend(self, x: Tensor, class_only: bool) -> Tensor:
        d = x.shape[-1]
        if class_only:
            weight, bias = self.query_key_value.weight, self.query_key_value.bias
            query = F.linear(x[:, :1], weight[:d], bias[:d])
            key, value = F.linear(x, weight[d:], bias[d:]).chunk(2, -1)
        else:
            query, key, value = self.query_key_value(x).chunk(3, -1)
        dropout = self.attention_dropout if self.training else 0.0
        context = self.attention(self._split(query), self._split(key), self._split(value), dropout)
        return self.attention_out(context.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Encoder(nn.Module):
    """Layers over a class token and the tokens that follow it; gives what the class token has become."""

    def __init__(self, shape: Shape, attention: Attention, *, tokens: int, layers: int) -> None:
        super().__init__()
        self.checkpointing = shape.activation_checkpointing
        self.class_token = nn.Parameter(torch.zeros(shape.hidden_size))
        self.positions = nn.Parameter(torch.zeros(tokens + 1, shape.hidden_size))
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(Layer(shape, attention) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, d] -> [B, d]."""
        # Sums of float32: what the layers add to them stays as exact as the parameters are.
        first = (self.class_token + self.positions[0]).expand(len(x), 1, -1)
        x = self.dropout(torch.cat([first, x + self.positions[1:]], 1))
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            if self.checkpointing and self.training:
                x = checkpoint(layer, x, number == last, use_reentrant=False)
            else:
                x = layer(x, number == last)
        return x[:, 0]


class ViViT(nn.Module):
    """Clips in, scores of the classes out."""

    def __init__(self, shape: Shape, attention: Attention = standard_attention) -> None:
        super().__init__()
        self.shape = shape
        scale = [1 / (255 * std) for std in shape.pixel_std]
        shift = [-mean / std for mean, std in zip(shape.pixel_mean, shape.pixel_std)]
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        self.register_buffer("shift", torch.tensor(shift), persistent=False)
        self.tubelets = nn.Linear(shape.tubelet_values, shape.hidden_size)
        if shape.attention == "joint":
            tokens = shape.moments * shape.places
            self.encoder = Encoder(shape, attention, tokens=tokens, layers=shape.num_layers)
        else:
            self.encoder = Encoder(shape, attention, tokens=shape.places, layers=shape.num_layers)
            self.temporal = Encoder(shape, attention, tokens=shape.moments, layers=shape.temporal_layers)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=1e-6)
        self.classifier = nn.Linear(shape.hidden_size, shape.num_classes)
        self._initialise()

    def forward(self, clips: Tensor) -> Tensor:
        """`clips` [B, frames, height, width, channels] in bytes -> scores [B, classes]."""
        x = self.tubelets(self._cut(clips))
        if self.shape.attention == "joint":
            x = self.encoder(x.flatten(1, 2))
        else:
            x = self.encoder(x.flatten(0, 1))
            x = self.temporal(x.unflatten(0, (-1, self.shape.moments)))
        return self.classifier(self.norm(x))

    def _cut(self, clips: Tensor) -> Tensor:
        """[B, moments, places, values of a tubelet]: a product with these is the convolution of the paper."""
        t, p = self.shape.tubelet_frames, self.shape.tubelet_size
        x = clips * self.scale + self.shift
        x = x.unflatten(3, (-1, p)).unflatten(2, (-1, p)).unflatten(1, (-1, t))
        # moments, frames, rows, y, columns, x, channels -> moments, rows, columns, frames, y, x, channels
        return x.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4).flatten(2, 3)

    def _initialise(self) -> None:
        """Normal weights and positions, no biases."""
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=self.shape.init_std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
