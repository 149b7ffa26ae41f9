"""Log-mel spectrograms: what Whisper hears of a sound.

Power spectra of overlapping Hann windows, summed into bands that are narrow below 1 kHz and ever wider above (Slaney's
mel scale, each band of area one), as logarithms of which the quietest 80 dB below the loudest are all that is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

LINEAR_HZ = 200.0 / 3
"""Width of a mel below 1 kHz."""
KNEE_MEL = 15.0
"""1 kHz: above it a mel is a ratio."""
RATIO = math.log(6.4) / 27
FLOOR = 1e-10
"""The least power that has a logarithm."""
RANGE = 8.0
"""Powers of ten that are kept below the loudest."""


@dataclass(frozen=True, kw_only=True)
class LogMel:
    """How a sound is cut and weighed; every field is a parameter of case.toml."""

    sample_rate: int
    fft_size: int
    hop: int
    mel_bins: int
    audio_frames: int

    @classmethod
    def of(cls, params):
        """The spectrogram that the planned parameters describe."""
        return cls(**{field.name: params[field.name] for field in fields(cls)})

    @property
    def samples(self) -> int:
        """Length of a clip."""
        return self.audio_frames * self.hop

    @cached_property
    def filters(self) -> Tensor:
        """[mel_bins, fft_size // 2 + 1]: triangles between neighbouring mel points, of area one."""
        top = _mel(self.sample_rate / 2)
        points = torch.tensor([_hertz(top * i / (self.mel_bins + 1)) for i in range(self.mel_bins + 2)]).double()
        bins = torch.linspace(0, self.sample_rate / 2, self.fft_size // 2 + 1, dtype=torch.float64)
        low, centre, high = (points[i : i + self.mel_bins, None] for i in range(3))
        triangle = torch.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clamp(min=0)
        return (triangle * 2 / (high - low)).float()

    @cached_property
    def window(self) -> Tensor:
        """The Hann window of a frame."""
        return torch.hann_window(self.fft_size)

    def __call__(self, sounds: Tensor) -> Tensor:
        """[B, samples] of -1 to 1 -> [B, mel_bins, audio_frames], about -1 to 1 or a little more."""
        spectra = torch.stft(sounds, self.fft_size, self.hop, window=self.window, return_complex=True)
        power = spectra[..., :-1].abs().square()  # as published: the frame that only just begins is left out
        levels = (self.filters @ power).clamp(min=FLOOR).log10()
        loudest = levels.amax((1, 2), keepdim=True)
        return (torch.maximum(levels, loudest - RANGE) + 4) / 4


def _mel(hertz: float) -> float:
    knee = KNEE_MEL * LINEAR_HZ
    return hertz / LINEAR_HZ if hertz < knee else KNEE_MEL + math.log(hertz / knee) / RATIO


def _hertz(mel: float) -> float:
    return mel * LINEAR_HZ if mel < KNEE_MEL else KNEE_MEL * LINEAR_HZ * math.exp((mel - KNEE_MEL) * RATIO)
