"""The data of the preset `mini`: English phrases with their German translation, in which something is blanked out.

The phrases are dates, units, spans of time and lists from the Unicode CLDR. Part A is the whole English phrase, then
the German one with a blank; part B is what the blank stood for, closed by an end token.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from data import Filled, HeldOut
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("[PAD]", "[MASK]", "[SOP]", "[EOP]", "[CLS]", "[SEP]")
MASK, SOP, EOP, CLS, SEP = range(1, 6)

KINDS = ("date", "unit", "rel", "list")
"""What is phrased, not merely named, so that the English side tells the answer."""
RESERVED = 600
"""The first phrases of the file (it is shuffled) are never trained on."""
QUESTIONS = 300
"""Held-out questions: the first reserved phrases for which three wrong answers exist."""
WRONG = 3
LONGEST_SPAN = 3
"""Words that a training blank may swallow."""


MEAN_WORK = (29.233, 727.26, 6.768)
"""Tokens, pairs of attention and predicted tokens of a mean training question, known without reading the data."""


class Phrase(NamedTuple):
    """One line of the file."""

    english: str
    german: str
    kind: str


def read_phrases(path: Path) -> tuple[list[Phrase], list[Phrase]]:
    """(training phrases, reserved phrases). No text of one occurs in the other."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        phrases = [Phrase(*line.rstrip("\n").split("\t")) for line in lines]
    usable = [phrase for phrase in phrases if phrase.kind in KINDS and len(phrase.german.split()) > 1]
    reserved = usable[:RESERVED]
    seen = {text for phrase in reserved for text in (phrase.english, phrase.german)}
    return [p for p in usable[RESERVED:] if p.english not in seen and p.german not in seen], reserved


def train_tokenizer(phrases: Iterable[Phrase], vocab_size: int) -> Tokenizer:
    """Byte-pair encoding of the training phrases, each digit a token of its own: numbers are read, not memorised."""
    tokenizer = Tokenizer(models.BPE())
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytewise])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for phrase in phrases for text in phrase[:2]), trainer)
    return tokenizer


class Tokenized(NamedTuple):
    """A phrase as tokens: the English side whole, the German side word by word, ready for any blank."""

    english: tuple[int, ...]
    german: tuple[tuple[int, ...], ...]

    def blanked(self, first: int, count: int) -> Filled:
        """The question that hides `count` words from word `first` on."""
        answer = [token for word in self.german[first : first + count] for token in word]
        return self.asking(first, count, (*answer, EOP))

    def asking(self, first: int, count: int, answer: Sequence[int]) -> Filled:
        """The same question with another answer."""
        before = [token for word in self.german[:first] for token in word]
        after = [token for word in self.german[first + count :] for token in word]
        context = [CLS, *self.english, SEP, *before, MASK, *after]
        return Filled(context, 2 + len(self.english) + len(before), SOP, answer)


class Words:
    """A cache over the tokenizer: a few hundred different words make up all phrases."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, tuple[int, ...]] = {}

    def __call__(self, word: str) -> tuple[int, ...]:
        """Tokens of one word with the space before it, the same wherever it stands."""
        if word not in self._known:
            self._known[word] = tuple(self._tokenizer.encode(f" {word}").ids)
        return self._known[word]

    def phrase(self, phrase: Phrase) -> Tokenized:
        """A whole line."""
        english = tuple(token for word in phrase.english.split() for token in self(word))
        return Tokenized(english, tuple(map(self, phrase.german.split())))


class Blanks(Sequence[Sequence[Filled]]):
    """One epoch of training: every phrase once, with a blank of one to three words at a random place."""

    def __init__(self, phrases: Sequence[Tokenized], seed: int, epoch: int) -> None:
        random = np.random.default_rng((seed, epoch))
        self._phrases = phrases
        self._order = random.permutation(len(phrases))
        self._place = random.random(len(phrases))
        self._count = random.integers(1, LONGEST_SPAN + 1, len(phrases))

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index):
        phrase = self._phrases[self._order[index]]
        first = int(self._place[index] * len(phrase.german))
        return (phrase.blanked(first, min(int(self._count[index]), len(phrase.german) - first)),)


class ClozeTraining:
    """The training phrases, tokenised once."""

    def __init__(self, phrases: Iterable[Phrase], words: Words) -> None:
        self._phrases = [words.phrase(phrase) for phrase in phrases]

    def __len__(self) -> int:
        return len(self._phrases)

    def epoch(self, seed: int, epoch: int) -> Blanks:
        """All phrases in the order of (seed, epoch)."""
        return Blanks(self._phrases, seed, epoch)


def held_out(train: Iterable[Phrase], reserved: Iterable[Phrase], words: Words) -> list[HeldOut]:
    """The fixed evaluation: one word of each phrase is missing, and four are offered.

    The three wrong ones come from training phrases of the same kind and length, from the same place. The draw has a
    seed of its own, so all runs answer the same questions.
    """
    random = np.random.default_rng(0)
    bank = _words_by_place(train)
    questions: list[HeldOut] = []
    for phrase in reserved:
        german = phrase.german.split()
        place = int(random.integers(len(german)))
        wrong = sorted(bank.get((phrase.kind, place, len(german)), set()) - {german[place]})
        if len(wrong) < WRONG:
            continue
        offered = [german[place], *(wrong[i] for i in random.permutation(len(wrong))[:WRONG])]
        order = random.permutation(WRONG + 1)
        tokenized = words.phrase(phrase)
        candidates = tuple(tokenized.asking(place, 1, (*words(offered[i]), EOP)) for i in order)
        questions.append(HeldOut(candidates, frozenset({int(np.argmin(order))})))
    return questions[:QUESTIONS]


def _words_by_place(phrases: Iterable[Phrase]) -> dict[tuple[str, int, int], set[str]]:
    bank: dict[tuple[str, int, int], set[str]] = {}
    for phrase in phrases:
        german = phrase.german.split()
        for place, word in enumerate(german):
            bank.setdefault((phrase.kind, place, len(german)), set()).add(word)
    return bank
