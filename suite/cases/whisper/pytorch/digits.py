"""The data of the preset `mini`: spoken digits, said one after the other into a little noise.

A recording is one digit of one voice. An utterance strings a few together, each a little faster or slower, louder or
quieter, with pauses between them. Adaptation uses the recordings of one person; the base heard synthetic voices only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mel import LogMel
from torch import Tensor

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
START, END = 10, 11
"""Tokens beside the ten digits."""
SHORTEST, LONGEST = 2, 4
"""Digits of an utterance."""
FIRST_EPOCH = 1
EVALUATED = 150
"""Held-out utterances: as many sequences of digits, which no training utterance has."""
HELD_OUT_SEED = 20240311
HELD_OUT_VOICES = 2
"""Synthetic voices that the base never heard."""

Voice = Sequence[np.ndarray]
"""The ten digits of one voice, samples of -1 to 1."""


class Voices(NamedTuple):
    """All recordings of the file."""

    real: tuple[Voice, ...]
    synthetic: tuple[Voice, ...]


def read_voices(path: Path) -> Voices:
    """The recordings of a file whose arrays are called KIND/VOICE/DIGIT: 8 bits a sample, mu-law."""
    found: dict[str, dict[str, dict[int, np.ndarray]]] = {"real": {}, "tts": {}}
    with np.load(path) as arrays:
        for name in arrays.files:
            kind, voice, digit = name.split("/")
            found[kind].setdefault(voice, {})[int(digit)] = expand(arrays[name])
    real, synthetic = (
        tuple([voice[digit] for digit in range(10)] for voice in found[kind].values()) for kind in ("real", "tts")
    )
    return Voices(real, synthetic)


def expand(coded: np.ndarray) -> np.ndarray:
    """Mu-law bytes as samples: fine steps near silence, coarse ones where it is loud."""
    level = coded.astype(np.float32) / 127.5 - 1
    return (np.sign(level) * np.expm1(np.abs(level) * np.log(256)) / 255).astype(np.float32)


def held_out_sequences() -> list[tuple[int, ...]]:
    """The sequences of digits that are asked for, the same for every seed and run; no two are equal."""
    random, found = np.random.default_rng(HELD_OUT_SEED), {}
    while len(found) < EVALUATED:
        found[draw(random, LONGEST)] = None
    return list(found)


def draw(random: np.random.Generator, longest: int, shortest: int = SHORTEST) -> tuple[int, ...]:
    """A random sequence of digits."""
    count = random.integers(min(shortest, longest), longest + 1)
    return tuple(map(int, random.integers(0, 10, count)))


class Utterances:
    """Training utterances of some voices, each a function of (seed, epoch, index) alone."""

    def __init__(self, voices: Sequence[Voice], mel: LogMel, longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        self._voices, self._mel = voices, mel
        self._longest, self._shortest = longest, shortest
        self._reserved = frozenset(held_out_sequences())

    def take(self, seed: int, epoch: int, indices: Sequence[int]) -> tuple[Tensor, list[list[int]]]:
        """(spectrograms, labels) of some utterances of an epoch."""
        sounds, labels = [], []
        for index in indices:
            random = np.random.default_rng((seed, epoch, int(index)))
            digits = draw(random, self._longest, self._shortest)
            while digits in self._reserved:
                digits = draw(random, self._longest, self._shortest)
            sounds.append(say(self._voices[random.integers(len(self._voices))], digits, self._mel.samples, random))
            labels.append([START, *digits, END])
        return self._mel(torch.from_numpy(np.stack(sounds))), labels


class HeldOut:
    """The utterances that are asked for; each is the same whichever are taken, in every run."""

    def __init__(self, voices: Sequence[Voice], mel: LogMel) -> None:
        self._voices, self._mel = voices, mel
        self._sequences = held_out_sequences()

    def __len__(self) -> int:
        return len(self._sequences)

    def take(self, indices: Sequence[int]) -> tuple[Tensor, list[list[str]]]:
        """(spectrograms, words) of some utterances."""
        sounds, words = [], []
        for index in indices:
            random = np.random.default_rng((HELD_OUT_SEED, int(index)))
            voice = self._voices[random.integers(len(self._voices))]
            sounds.append(say(voice, self._sequences[index], self._mel.samples, random))
            words.append(words_of(self._sequences[index]))
        return self._mel(torch.from_numpy(np.stack(sounds))), words


class Heard:
    """Utterances of an epoch of the training, as many as are held out (a run broken on purpose)."""

    def __init__(self, utterances: Utterances, seed: int, epoch: int) -> None:
        self._utterances, self._of = utterances, (seed, epoch)

    def __len__(self) -> int:
        return EVALUATED

    def take(self, indices: Sequence[int]) -> tuple[Tensor, list[list[str]]]:
        """(spectrograms, words) of some utterances."""
        features, labels = self._utterances.take(*self._of, indices)
        return features, [words_of(said[1:-1]) for said in labels]


class Digits:
    """The data set as train.py asks for it."""

    prompt = (START,)

    def __init__(self, path: Path, mel: LogMel, epoch_samples: int) -> None:
        voices = read_voices(path).real
        self._utterances = Utterances(voices, mel)
        self.held_out = HeldOut(voices, mel)
        self.size = epoch_samples

    def hold_out_training(self, seed: int) -> None:
        """Ask for utterances of the first epoch from now on."""
        self.held_out = Heard(self._utterances, seed, FIRST_EPOCH)

    def take(self, seed: int, epoch: int, indices: Sequence[int]) -> tuple[Tensor, list[list[int]]]:
        """(spectrograms, labels) of some samples of an epoch; no two epochs are alike."""
        return self._utterances.take(seed, epoch, indices)

    @staticmethod
    def words(tokens: Sequence[int]) -> list[str]:
        """What tokens say."""
        return words_of(tokens)


def mean_work() -> tuple[float, float]:
    """(labels, pairs of them that look at each other) of a mean training utterance: the digits, then the end."""
    free = {n: 1 - sum(len(digits) == n for digits in held_out_sequences()) / 10**n for n in (2, 3, 4)}
    share = {n + 1: value / sum(free.values()) for n, value in free.items()}
    return sum(n * p for n, p in share.items()), sum(n * (n + 1) / 2 * p for n, p in share.items())


def words_of(tokens: Sequence[int]) -> list[str]:
    """What tokens say; one that is no digit is a word that nobody said."""
    return [WORDS[token] if 0 <= token < len(WORDS) else "?" for token in tokens]


def say(voice: Voice, digits: Sequence[int], samples: int, random: np.random.Generator) -> np.ndarray:
    """One utterance in a clip of so many samples."""
    pace = random.uniform(0.80, 1.04)
    parts = [np.zeros(random.integers(100, 1200), dtype=np.float32)]
    for digit in digits:
        spoken = _stretched(voice[digit], pace * random.uniform(0.96, 1.04)) * random.uniform(0.7, 1.0)
        parts += [spoken, np.zeros(random.integers(50, 900))]
    sound = np.concatenate(parts)[:samples] * random.uniform(0.5, 1.0)
    sound = sound + random.standard_normal(len(sound)) * 10 ** random.uniform(-3, -1.8)
    return np.pad(sound, (0, samples - len(sound))).astype(np.float32)


def _stretched(sound: np.ndarray, factor: float) -> np.ndarray:
    """The sound `factor` times as long; its pitch falls as the length grows."""
    count = int(len(sound) * factor)
    return np.interp(np.linspace(0, len(sound) - 1, count), np.arange(len(sound)), sound)
