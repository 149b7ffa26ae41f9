"""The data of the preset full: sentences of ten directions of translation, asked for in a prompt.

Files as the ALMA project ships them, in one folder for each language that is paired with English:
`zhen/train.zh-en.json` (or two files of lines, `train.zh-en.zh` and `train.zh-en.en`) for both directions,
`zhen/test.zh-en.json` and `zhen/test.en-zh.json` each for its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from data import Example, Frame
from tokenizers import Tokenizer

from suite.drivers.events import RunProblem

LANGUAGES = {"cs": "Czech", "de": "German", "en": "English", "is": "Icelandic", "ru": "Russian", "zh": "Chinese"}
PAIRS = tuple(f"{one}-en" for one in ("de", "cs", "is", "zh", "ru")) + tuple(
    f"en-{one}" for one in ("de", "cs", "is", "zh", "ru")
)
"""All directions, in the order in which the guide lists them."""


class Question(NamedTuple):
    """A held-out sentence."""

    prompt: tuple[int, ...]
    reference: str
    source: str


class Sentence(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Prompts:
    """Turns sentences of one direction into tokens, and tokens back into a translation."""

    def __init__(self, tokenizer: Tokenizer, pair: str, longest_source: int) -> None:
        self._tokenizer = tokenizer
        self._pair = check_pair(pair)
        self._longest = longest_source
        ids = {name: tokenizer.token_to_id(name) for name in ("<s>", "</s>")}
        if None in ids.values():
            raise RunProblem("tokenizer.json has no tokens <s> and </s>: name the tokenizer of Llama 2")
        self._begin, self.end = ids["<s>"], ids["</s>"]

    def prompt(self, source: str) -> tuple[int, ...]:
        """What precedes a translation; a source that is too long is cut, what asks for its translation is not."""
        ours, theirs = (LANGUAGES[one] for one in self._pair)
        ahead = self._ids(f"Translate this from {ours} to {theirs}:\n{ours}: {source}")
        behind = self._after_colon(theirs)
        return (self._begin, *ahead[: self._longest - 1 - len(behind)], *behind)

    def answer(self, target: str) -> tuple[int, ...]:
        """The translation and the end token."""
        return (*self._ids(target), self.end)

    def text(self, answer: Sequence[int]) -> str:
        """What was translated: the first line up to the end token."""
        tokens = list(answer)
        kept = tokens[: tokens.index(self.end)] if self.end in tokens else tokens
        return self._tokenizer.decode(kept, skip_special_tokens=True).strip().split("\n")[0]

    def _after_colon(self, language: str) -> tuple[int, ...]:
        """The tokens of a new line and `Language:`, as they are within a text."""
        whole, start = self._ids(f"a\n{language}:"), self._ids("a")
        return whole[len(start) :]

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


def check_pair(pair: str) -> tuple[str, str]:
    """(source, target) of a direction such as `zh-en`. Raises RunProblem."""
    if pair not in PAIRS:
        raise RunProblem(f"language_pair = {pair!r} is not one of {', '.join(PAIRS)}: change params.language_pair")
    source, _, target = pair.partition("-")
    return source, target


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json. Raises RunProblem."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as problem:  # the package raises its base class
        raise RunProblem(f"{path} is no tokenizer.json ({problem}): name one") from problem


def read_sentences(folder: Path, part: str, pair: str) -> list[Sentence]:
    """`part` train or test of a direction; the sentences to train on serve both directions of their pair."""
    source, target = check_pair(pair)
    other = source if target == "en" else target
    stem = folder / f"{other}en" / (f"test.{pair}" if part == "test" else f"{part}.{other}-en")
    array, lines = (
        stem.with_name(f"{stem.name}.json"),
        [stem.with_name(f"{stem.name}.{one}") for one in (source, target)],
    )
    if array.is_file():
        return _from_json(array, source, target)
    if all(path.is_file() for path in lines):
        texts = [path.read_text(encoding="utf-8").splitlines() for path in lines]
        if len(texts[0]) != len(texts[1]):
            raise RunProblem(f"{lines[0]} has {len(texts[0])} lines, {lines[1]} {len(texts[1])}: they must be equal")
        return _kept(Sentence(*both) for both in zip(*texts))
    raise RunProblem(f"{array} ({pair}) is missing: python -m tools data status alma says how to get it")


def examples(sentences: Iterable[Sentence], prompts: Prompts, frame: Frame) -> list[Example]:
    """What is trained on."""
    return [frame.cut(prompts.prompt(one.source), prompts.answer(one.target)) for one in sentences]


def questions(sentences: Iterable[Sentence], prompts: Prompts) -> list[Question]:
    """What is asked in an evaluation."""
    return [Question(prompts.prompt(one.source), one.target, one.source) for one in sentences]


def _from_json(path: Path, source: str, target: str) -> list[Sentence]:
    """An array of {"translation": {language: sentence}}, or one such object a line."""
    text = path.read_text(encoding="utf-8")
    try:
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
        return _kept(Sentence(row["translation"][source], row["translation"][target]) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RunProblem(
            f"{path} is not a list of {{translation: {{{source}, {target}}}}} ({type(problem).__name__}: {problem}):"
            " name files as data.toml lists them"
        ) from problem


def _kept(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Those that have words on both sides."""
    stripped = (Sentence(one.source.strip(), one.target.strip()) for one in sentences)
    return [one for one in stripped if one.source and one.target]
