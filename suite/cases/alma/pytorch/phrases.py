"""The data of the preset mini: English phrases with their German translation, from the Unicode CLDR.

The model underneath learns both languages, and how names are translated; the adapters then learn dates, units and spans
of time, of which it has seen each side by itself.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from data import Example
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from translation import Question

from suite.drivers.events import RunProblem

SPECIALS = ("<pad>", "<begin>", "<end>", "<en>", "<de>")
BEGIN, END = 1, 2
PAIRS = ("en-de", "de-en")
KINDS = ("date", "unit", "rel")
"""What the adapters learn to translate."""
HELD_OUT = 300


class Phrase(NamedTuple):
    """One line of the file."""

    en: str
    de: str
    kind: str


class Phrases:
    """All phrases: held out, to adapt to, and to learn both languages from. No text of the first is in the others."""

    def __init__(self, path: Path) -> None:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            every = [Phrase(*line.rstrip("\n").split("\t")) for line in lines]
        self.held_out = [one for one in every if one.kind in KINDS][:HELD_OUT]
        seen = {text for one in self.held_out for text in one[:2]}
        self.training = [one for one in every if one.en not in seen and one.de not in seen]

    @property
    def domain(self) -> list[Phrase]:
        """Of the kinds that the adapters learn."""
        return [one for one in self.training if one.kind in KINDS]

    @property
    def names(self) -> list[Phrase]:
        """Of the other kinds."""
        return [one for one in self.training if one.kind not in KINDS]


class Tokens:
    """Turns phrases of one direction into tokens, and tokens back into a translation."""

    end = END

    def __init__(self, tokenizer: Tokenizer, pair: str) -> None:
        if pair not in PAIRS:
            raise RunProblem(
                f"language_pair = {pair!r}: the phrases have {' and '.join(PAIRS)}; change it to one of them"
            )
        self._tokenizer = tokenizer
        self._source, _, self._target = pair.partition("-")

    def translation(self, phrase: Phrase) -> Example:
        """The phrase, and its translation as the answer."""
        return Example(self._prompt(phrase), self._answer(getattr(phrase, self._target)))

    def question(self, phrase: Phrase) -> Question:
        """The phrase without its answer."""
        return Question(self._prompt(phrase), *(getattr(phrase, side) for side in (self._target, self._source)))

    def monolingual(self, phrase: Phrase, language: str) -> Example:
        """One side of the phrase, prompted by its language alone."""
        return Example((BEGIN, self._language(language)), self._answer(getattr(phrase, language)))

    def text(self, answer: Sequence[int]) -> str:
        """What was translated, up to the end token."""
        tokens = list(answer)
        return self._tokenizer.decode(
            tokens[: tokens.index(END)] if END in tokens else tokens, skip_special_tokens=True
        )

    def _prompt(self, phrase: Phrase) -> tuple[int, ...]:
        source = self._tokenizer.encode(getattr(phrase, self._source)).ids
        return (BEGIN, self._language(self._source), *source, self._language(self._target))

    def _answer(self, text: str) -> tuple[int, ...]:
        return (*self._tokenizer.encode(text).ids, END)

    @staticmethod
    def _language(language: str) -> int:
        return SPECIALS.index(f"<{language}>")


def underneath(phrases: Phrases, tokens: Tokens) -> list[Example]:
    """What the model underneath learns: one side of every phrase by itself, and twice the translation of every name."""
    sides = [tokens.monolingual(one, "en" if index % 2 else "de") for index, one in enumerate(phrases.training)]
    return sides + [tokens.translation(one) for one in phrases.names] * 2


def train_tokenizer(phrases: Iterable[Phrase], vocab_size: int) -> Tokenizer:
    """Byte-pair encoding of the training phrases, each digit a token of its own, as Llama's."""
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
