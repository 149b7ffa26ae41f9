"""Plain text to pairs of segments: the sequences that BERT is pre-trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from masking import Words, hide
from sequences import Sequences, from_padded
from tokenizers import BertWordPieceTokenizer

from suite.drivers.events import RunProblem

SHORT = 0.1
"""Share of sequences that are made shorter than there is room, as fine-tuning will meet them."""
ELSEWHERE = 0.5
"""Share of pairs whose second segment comes from another document."""

Document = list[list[int]]
"""Sentences as word pieces."""


class Pair(NamedTuple):
    """Two segments, and whether the second comes from elsewhere."""

    first: list[int]
    second: list[int]
    elsewhere: bool


class Vocabulary:
    """WordPiece, lower case, by the vocabulary file of a published BERT."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise RunProblem(f"{path} is missing: --vocab names a vocabulary with one word piece a line")
        pieces = path.read_text(encoding="utf-8").split("\n")
        missing = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} - set(pieces)
        if missing:
            raise RunProblem(f"{path} has no {', '.join(sorted(missing))}: it is no vocabulary of BERT")
        if pieces[0] != "[PAD]":
            raise RunProblem(f"{path} begins with {pieces[0]!r}: [PAD] must be the first word piece, token 0")
        self._tokenizer = BertWordPieceTokenizer(str(path), lowercase=True)
        self.cls, self.sep, mask = (self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
        self.words = Words(mask=mask, first=1, count=self._tokenizer.get_vocab_size())

    def encode(self, sentence: str) -> list[int]:
        """The word pieces of one sentence, without [CLS] and [SEP]."""
        return self._tokenizer.encode(sentence, add_special_tokens=False).ids


def read_documents(paths: Sequence[Path], encode: Callable[[str], list[int]]) -> list[Document]:
    """Documents of text files: one sentence a line, an empty line between documents."""
    documents: list[Document] = [[]]
    for path in paths:
        if not path.is_file():
            raise RunProblem(f"{path} is missing: --text names text files, one sentence a line")
        for line in path.read_text(encoding="utf-8").splitlines():
            if pieces := encode(line.strip()):
                documents[-1].append(pieces)
            elif not line.strip() and documents[-1]:
                documents.append([])
        if documents[-1]:
            documents.append([])
    full = [document for document in documents if document]
    if len(full) < 2:
        raise RunProblem(f"{paths[0]} has {len(full)} documents: part at least two by an empty line")
    return full


def pairs(documents: Sequence[Document], length: int, random: np.random.Generator) -> Iterator[Pair]:
    """Each document once, cut into pairs of at most `length` - 3 tokens together."""
    room = length - 3
    for number, document in enumerate(documents):
        position = 0
        while position < len(document):
            wanted = int(random.integers(2, room + 1)) if random.random() < SHORT else room
            chunk = _collect(document, position, wanted)
            split = int(random.integers(1, len(chunk))) if len(chunk) > 1 else 1
            first = list(chain(*chunk[:split]))
            elsewhere = len(chunk) == 1 or random.random() < ELSEWHERE
            if elsewhere:
                # What is not used of this chunk is left for the next pair.
                position += split
                second = _other(documents, number, wanted - len(first), random)
            else:
                position += len(chunk)
                second = list(chain(*chunk[split:]))
            yield Pair(*_cut(first, second, wanted, random), elsewhere)


def _collect(document: Document, position: int, wanted: int) -> Document:
    """Sentences from `position` on until they have `wanted` tokens."""
    chunk, total = [], 0
    for sentence in document[position:]:
        chunk.append(sentence)
        total += len(sentence)
        if total >= wanted:
            break
    return chunk


def _other(documents: Sequence[Document], number: int, wanted: int, random: np.random.Generator) -> list[int]:
    """Sentences of another document from a random one on, until they have `wanted` tokens."""
    other = int(random.integers(len(documents) - 1))
    document = documents[other + (other >= number)]
    return list(chain(*_collect(document, int(random.integers(len(document))), max(1, wanted))))


def _cut(first: list[int], second: list[int], room: int, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Both segments, shortened by the longer one's first or last token until they fit; neither becomes empty."""
    first, second = list(first), list(second)
    while len(first) + len(second) > max(2, room):
        longer = first if len(first) > len(second) else second
        longer.pop(0 if random.random() < 0.5 else -1)
    return first, second


def mask_pairs(
    made: Sequence[Pair], vocabulary: Vocabulary, *, length: int, share: float, limit: int, random: np.random.Generator
) -> Sequences:
    """`made` as sequences in which a `share` of the tokens, at least 1 and at most `limit`, are hidden."""
    shape = (len(made), length)
    tokens, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    allowed, lengths = np.zeros(shape, dtype=bool), np.zeros(len(made), dtype=np.int64)
    for row, pair in enumerate(made):
        a, b = len(pair.first), len(pair.second)
        tokens[row, : a + b + 3] = [vocabulary.cls, *pair.first, vocabulary.sep, *pair.second, vocabulary.sep]
        segments[row, a + 2 : a + b + 3] = 1
        allowed[row, 1 : a + 1] = allowed[row, a + 2 : a + b + 2] = True
        lengths[row] = a + b + 3
    counts = np.clip(np.rint(lengths * share), 1, limit).astype(np.int64)
    hidden, places, ids = hide(tokens, allowed, counts, vocabulary.words, random)
    return from_padded(hidden, segments, lengths, places, ids, np.array([pair.elsewhere for pair in made]))
