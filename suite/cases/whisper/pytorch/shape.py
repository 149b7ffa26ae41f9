"""The sizes of one Whisper, and what follows from them: parameters and work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

MULTIPLE = 8
"""The table of tokens has a multiple of this many rows: matrix units take no other width at full speed."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that make one Whisper; every field is a parameter of case.toml."""

    mel_bins: int
    audio_frames: int
    hidden_size: int
    feed_size: int
    encoder_layers: int
    decoder_layers: int
    num_heads: int
    vocab_size: int
    max_labels: int
    start_token: int
    end_token: int
    init_std: float
    lora_rank: int
    lora_alpha: float
    lora_dropout: float
    activation_checkpointing: bool

    @classmethod
    def of(cls, params: Mapping[str, object]) -> Shape:
        """The shape that the planned parameters describe; rank 0 has no adapters, and all of it learns."""
        return cls(**{field.name: params[field.name] for field in fields(cls)})

    @property
    def heard(self) -> int:
        """Places of the encoder: half the frames."""
        return -(-self.audio_frames // 2)

    @property
    def words(self) -> int:
        """Rows of the table of tokens: the vocabulary, rounded up."""
        return -(-self.vocab_size // MULTIPLE) * MULTIPLE

    @property
    def attentions(self) -> int:
        """Attention modules, each with two adapters."""
        return self.encoder_layers + 2 * self.decoder_layers

    def adapter_parameters(self) -> int:
        """How many parameters learn."""
        return self.attentions * 2 * self.lora_rank * 2 * self.hidden_size

    def base_parameters(self) -> int:
        """How many parameters the published model has; ours has `surplus_parameters` zeros more."""
        d, f = self.hidden_size, self.feed_size
        attention, feed, norm = 4 * d * d + 3 * d, 2 * d * f + d + f, 2 * d
        encoder = 3 * d * self.mel_bins + d + 3 * d * d + d + self.heard * d + norm
        decoder = (self.vocab_size + self.max_labels) * d + norm
        layers = self.encoder_layers * (attention + feed + 2 * norm)
        return encoder + decoder + layers + self.decoder_layers * (2 * attention + feed + 3 * norm)

    def surplus_parameters(self) -> int:
        """Zeros: biases of keys, which one product for query, key and value has, and rows that round the table up."""
        return self.attentions * self.hidden_size + (self.words - self.vocab_size) * self.hidden_size

    def training_flops(self, labels: float, pairs: float) -> float:
        """FLOP to train the adapters on one sample: two for each multiply-accumulate that the gradient needs.

        All frames are heard, `labels` places are written, `pairs` of them look at each other. A frozen product is
        computed forwards, and backwards for its input alone; an adapter also for its weights. Nothing before the
        first adapter of either side has a gradient: no convolution, no embedding, no key and no input of layer 0.
        """
        d, f, heard = self.hidden_size, self.feed_size, self.heard
        unlearnt = 3 * self.mel_bins * d * self.audio_frames + 3 * d * d * heard
        frozen = self.encoder_layers * (4 * d * d + 2 * d * f) * heard
        frozen += self.decoder_layers * ((6 * d * d + 2 * d * f) * labels + 2 * d * d * heard)
        frozen += d * self.vocab_size * labels
        seen = self.encoder_layers * heard**2 + self.decoder_layers * (pairs + labels * heard)
        narrow = 2 * d * self.lora_rank
        adapters = self.encoder_layers * 2 * narrow * heard + self.decoder_layers * narrow * (3 * labels + heard)
        # Of layer 0, on both sides: three products and two adapters have no input to teach, and keys stay as they are.
        first = (3 * d * d + narrow) * (heard + labels) + d * (heard**2 + pairs)
        return 2 * (unlearnt + 2 * frozen + 3 * (2 * d * seen + adapters) - first)
