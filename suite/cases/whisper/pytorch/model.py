"""Whisper: an encoder hears a log-mel spectrogram, a decoder writes what was said.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022. Two convolutions halve the frames;
pre-norm transformer layers follow on both sides, and the decoder looks at the encoder's output in every layer. LoRA
adapters stand beside the products that make queries and values.
"""

from __future__ import annotations

import math

import torch
from attention import Attention, CrossAttention, Pair, SelfAttention, standard_attention
from lora import Adapter, freeze
from shape import Shape
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

IGNORED = -100
"""Label of a place that only fills the shape of a batch."""


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which the next product will be computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class Norm(nn.LayerNorm):
    """Layer norm, computed in float32 and handed on in the dtype of the next product: half the memory to move."""

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)
        return normal.to(compute_dtype(x))


class EncoderLayer(nn.Module):
    """Self-attention in both directions, then a feed-forward network."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        d = shape.hidden_size
        self.attention_norm = Norm(d)
        self.attention = SelfAttention(shape, attention, causal=False)
        self.feed_norm = Norm(d)
        self.feed_in = nn.Linear(d, shape.feed_size)
        self.feed_out = nn.Linear(shape.feed_size, d)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))[0]
        return bounded(x + self.feed_out(F.gelu(self.feed_in(self.feed_norm(x)))))


class DecoderLayer(nn.Module):
    """Self-attention to what precedes, attention to what was heard, then a feed-forward network."""

    def __init__(self, shape: Shape, attention: Attention) -> None:
        super().__init__()
        d = shape.hidden_size
        self.attention_norm = Norm(d)
        self.attention = SelfAttention(shape, attention, causal=True)
        self.cross_norm = Norm(d)
        self.cross = CrossAttention(shape, attention)
        self.feed_norm = Norm(d)
        self.feed_in = nn.Linear(d, shape.feed_size)
        self.feed_out = nn.Linear(shape.feed_size, d)

    def forward(self, x: Tensor, heard: Tensor) -> Tensor:
        return self.write(x, self.cross.remember(heard), None)[0]

    def write(self, x: Tensor, memory: Pair, past: Pair | None) -> tuple[Tensor, Pair]:
        """(output, keys and values so far), where what was heard is remembered already."""
        context, past = self.attention(self.attention_norm(x), past)
        x = x + context
        x = x + self.cross(self.cross_norm(x), memory)
        return x + self.feed_out(F.gelu(self.feed_in(self.feed_norm(x)))), past


def bounded(x: Tensor) -> Tensor:
    """x, kept from overflowing where it is float16: the large encoders come near its end."""
    if x.dtype != torch.float16:
        return x
    limit = torch.finfo(x.dtype).max - 1000
    return x.clamp(-limit, limit)


class Whisper(nn.Module):
    """Spectrograms and labels in, the loss of each out."""

    def __init__(self, shape: Shape, attention: Attention = standard_attention) -> None:
        super().__init__()
        self.shape = shape
        d = shape.hidden_size
        self.conv1 = nn.Conv1d(shape.mel_bins, d, 3, padding=1)
        self.conv2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.heard_places = nn.Parameter(torch.empty(shape.heard, d))
        self.encoder = nn.ModuleList(EncoderLayer(shape, attention) for _ in range(shape.encoder_layers))
        self.encoder_norm = Norm(d)
        self.tokens = nn.Embedding(shape.words, d)
        self.written_places = nn.Parameter(torch.empty(shape.max_labels, d))
        self.decoder = nn.ModuleList(DecoderLayer(shape, attention) for _ in range(shape.decoder_layers))
        self.decoder_norm = Norm(d)
        self.register_buffer("absent", torch.empty(shape.words), persistent=False)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """-log p of each sample's labels, a mean over its places, float32 [B].

        `features` [B, mel_bins, audio_frames]; `labels` [B, T], IGNORED where a label only fills the shape.
        """
        heard = self.encode(features)
        x = self.embed(self.inputs(labels), 0)
        for layer in self.decoder:
            x = self._run(layer, x, heard)
        scores = self.scores(x).flatten(0, 1)
        loss = F.cross_entropy(scores.float(), labels.flatten(), ignore_index=IGNORED, reduction="none")
        return loss.view(labels.shape).sum(1) / (labels != IGNORED).sum(1).clamp(min=1)

    def encode(self, features: Tensor) -> Tensor:
        """What was heard, [B, heard, d]."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(features.to(self.conv1.weight.dtype)))))
        x = x.transpose(1, 2) + self.heard_places
        for layer in self.encoder:
            x = self._run(layer, x)
        return self.encoder_norm(x)

    def inputs(self, labels: Tensor) -> Tensor:
        """What the decoder reads to write `labels`: the start token, then all labels but the last."""
        before = labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, self.shape.end_token)
        return torch.cat((torch.full_like(labels[:, :1], self.shape.start_token), before), 1)

    def embed(self, tokens: Tensor, first: int) -> Tensor:
        """Tokens [B, T] at the places from `first` on."""
        return self.tokens(tokens) + self.written_places[first : first + tokens.shape[1]]

    def scores(self, x: Tensor) -> Tensor:
        """Scores of all tokens, by the table that embeds them; a row that only rounds it up is never likely."""
        return F.linear(self.decoder_norm(x), self.tokens.weight, self.absent.to(self.tokens.weight.dtype))

    def compile_layers(self, **options: object) -> None:
        """Compile each layer on its own: layers of one kind share what is compiled, however many there are."""
        for layer in (*self.encoder, *self.decoder):
            layer.compile(**options)

    def _run(self, layer: nn.Module, *inputs: Tensor) -> Tensor:
        if self.shape.activation_checkpointing and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal weights, no biases; places that are heard are sines, as published."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv1d | nn.Embedding):
                nn.init.normal_(module.weight, std=self.shape.init_std)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Adapter):
                module.initialise()
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.normal_(self.written_places, std=self.shape.init_std)
        self.heard_places.copy_(sines(*self.heard_places.shape))
        self.tokens.weight[self.shape.vocab_size :] = 0
        self.absent.zero_()[self.shape.vocab_size :] = float("-inf")


def sines(count: int, width: int) -> Tensor:
    """Positions as waves: sines, then cosines, of wavelengths from 2 pi to 10,000 times that."""
    scale = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
    angle = torch.arange(count)[:, None] * scale
    return torch.cat((angle.sin(), angle.cos()), 1)


def make(shape: Shape, kept_in: torch.dtype = torch.float32, attention: Attention = standard_attention) -> Whisper:
    """A model with random weights on the CPU; with adapters all else is frozen, and kept in `kept_in`.

    Its memory is taken once, in the final dtype: 1.5 billion float32 weights a process would not fit small hosts.
    """
    with torch.device("meta"):
        model = Whisper(shape, attention)
        if shape.lora_rank:
            freeze(model, kept_in)
    model.to_empty(device="cpu")
    model.initialise()
    return model
