"""Spoken digits: short recordings joined to utterances, and what Whisper hears of them."""

import numpy as np
import torch
from torch.nn.functional import interpolate, pad

RATE, FFT, HOP, MELS, FRAMES = 8000, 256, 160, 40, 128
START, END, PAD = 10, 11, 12
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def read_voices(path, kind):
    """Recordings of the digits 0 to 9 of every voice of a kind, `real` or `tts`; mu-law in 8 bits."""
    voices = {}
    with np.load(path) as file:
        for name in file.files:
            what, voice, digit = name.split("/")
            if what == kind:
                level = file[name].astype(np.float32) / 127.5 - 1
                wave = np.sign(level) * (256.0 ** np.abs(level) - 1) / 255
                voices.setdefault(voice, {})[int(digit)] = torch.tensor(wave, dtype=torch.float32)
    return [voices[name] for name in sorted(voices)]


def utterance(voices, rng, fewest=2, most=4):
    """(wave, digits): one voice says some digits at its own pace, with pauses and noise."""
    voice = voices[rng.integers(len(voices))]
    digits = rng.integers(0, 10, rng.integers(fewest, most + 1)).tolist()
    pace = rng.uniform(0.88, 1.14)
    parts = [torch.zeros(int(rng.integers(100, 1200)))]
    for digit in digits:
        stretch = float(pace * rng.uniform(0.96, 1.04))
        word = interpolate(voice[digit][None, None], scale_factor=stretch, mode="linear")[0, 0]
        parts += [word * float(rng.uniform(0.7, 1.0)), torch.zeros(int(rng.integers(50, 900)))]
    wave = torch.cat(parts)[: FRAMES * HOP] * float(rng.uniform(0.5, 1.0))
    noise = torch.from_numpy(rng.standard_normal(len(wave), dtype=np.float32))
    return wave + noise * float(10 ** rng.uniform(-3, -1.8)), digits


class LogMel:
    """The logarithmic mel spectrum of a wave, scaled as Whisper's."""

    def __init__(self):
        def mel(hertz):
            return 2595 * np.log10(1 + hertz / 700)

        edges = 700 * (10 ** (np.linspace(mel(50), mel(RATE / 2), MELS + 2) / 2595) - 1) / RATE * FFT
        bins = np.arange(FFT // 2 + 1)
        rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.filters = torch.tensor(np.clip(np.minimum(rising, falling), 0, None), dtype=torch.float32)
        self.window = torch.hann_window(FFT)

    def __call__(self, wave):
        wave = pad(wave, (0, FRAMES * HOP - len(wave)))
        power = torch.stft(wave, FFT, HOP, window=self.window, return_complex=True).abs()[:, :FRAMES].square()
        levels = (self.filters @ power).clamp(min=1e-8).log10()
        return (torch.maximum(levels, levels.max() - 8) + 4) / 4


class SpokenDigits(torch.utils.data.Dataset):
    """So many utterances, each always the same."""

    def __init__(self, voices, size, seed):
        self.voices, self.size, self.seed, self.hear = voices, size, seed, LogMel()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        wave, digits = utterance(self.voices, np.random.default_rng([self.seed, index]))
        return {"input_features": self.hear(wave), "labels": [START, *digits, END]}
