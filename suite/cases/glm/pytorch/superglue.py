"""From SuperGLUE's ReCoRD (jsonl) to the HDF5 layout that record.py reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from data import Filled
from record import WORK
from sparse import SparseWriter
from tokenizers import BertWordPieceTokenizer

from suite.drivers.events import RunProblem

PLACEHOLDER = "@placeholder"
HIGHLIGHT = "@highlight"
"""Opens the summary lines at the end of a passage."""
SLAB = 256
"""Questions that are written at once."""


class Question(NamedTuple):
    """A query on a passage, its candidates as text, and which of them are right."""

    passage: str
    query: str
    candidates: tuple[str, ...]
    right: frozenset[int]


def read_questions(path: Path, *, training_choices: int | None, seed: int = 0) -> Iterator[Question]:
    """The questions of a jsonl file.

    For training (`training_choices` given) there is one question for each right answer: that answer first, then wrong
    entities, drawn where there are more than fit. For the evaluation every entity of the passage is a candidate.
    """
    random = np.random.default_rng(seed)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            passage, asked = entry["passage"]["text"], entry["qas"]
            spans = [(entity["start"], entity["end"] + 1) for entity in entry["passage"]["entities"]]
            queries = [(qa["query"], [answer["text"] for answer in qa["answers"]]) for qa in asked]
        except (ValueError, KeyError, TypeError) as error:
            raise RunProblem(f"{path}:{number} is not a line of SuperGLUE's ReCoRD ({error!r})") from error
        entities = tuple(dict.fromkeys(passage[first:last] for first, last in spans))
        for query, answers in queries:
            if training_choices is None:
                right = frozenset(i for i, entity in enumerate(entities) if entity in answers)
                yield Question(passage, query, entities, right)
                continue
            wrong = [entity for entity in entities if entity not in answers]
            for answer in dict.fromkeys(answers):
                drawn = random.permutation(len(wrong))[: training_choices - 1]
                yield Question(passage, query, (answer, *(wrong[i] for i in drawn)), frozenset({0}))


class Encoder:
    """Text to sequences of word pieces. Part B opens with the first id after the vocabulary."""

    def __init__(self, vocab: Path, *, vocab_size: int, length: int, max_answer: int) -> None:
        if not vocab.is_file():
            raise RunProblem(f"{vocab} is missing: put the vocabulary of bert-large-uncased there (data.toml)")
        missing = {"[MASK]", "[CLS]", "[SEP]"} - set(vocab.read_text(encoding="utf-8").split())
        if missing:
            raise RunProblem(f"{vocab} has no {', '.join(sorted(missing))}: it is not the one of bert-large-uncased")
        self._pieces = BertWordPieceTokenizer(str(vocab), lowercase=True)
        self._start = self._pieces.get_vocab_size()
        if self._start >= vocab_size:
            raise RunProblem(f"{vocab} has {self._start} word pieces, vocab_size {vocab_size} holds {vocab_size - 1}")
        self._mask, self._cls = map(self._pieces.token_to_id, ("[MASK]", "[CLS]"))
        self._length = length
        self._max_answer = max_answer
        self._passage: tuple[str, list[int]] = ("", [])

    def filled(self, question: Question) -> list[Filled]:
        """One sequence a candidate. What does not fit is cut from the end of the passage, for all candidates alike."""
        before, found, after = question.query.partition(PLACEHOLDER)
        if not found:
            raise RunProblem(f"the query {question.query!r} has no {PLACEHOLDER}: it is not one of ReCoRD's")
        answers = [self._ids(candidate)[: self._max_answer] for candidate in question.candidates]
        query = [*self._ids(before), self._mask, *self._ids(after)]
        room = self._length - 1 - len(query) - max(map(len, answers))
        context = [self._cls, *self._passage_ids(question.passage)[: max(0, room)], *query]
        return [Filled(context, context.index(self._mask), self._start, answer) for answer in answers]

    def _passage_ids(self, text: str) -> list[int]:
        """A passage has several questions in a row: the last one is kept."""
        if self._passage[0] != text:
            self._passage = (text, self._ids(text.replace(HIGHLIGHT, "-")))
        return self._passage[1]

    def _ids(self, text: str) -> list[int]:
        return self._pieces.encode(text, add_special_tokens=False).ids


def write(path: Path, questions: Iterable[Question], encoder: Encoder, *, length: int, training: bool) -> int:
    """Write the HDF5 file, whole or not at all. Returns the number of questions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    source, ends, right, work = iter(questions), [0], [], np.zeros(3)
    with h5py.File(partial, "w") as file:
        wide = {name: SparseWriter(file, name, length) for name in ("text", "position", "target", "logit_mask")}
        starts = []
        while slab := list(islice(source, SLAB)):
            rows = [encoder.filled(question) for question in slab]
            ends.extend(ends[-1] + np.cumsum([len(candidates) for candidates in rows]))
            right.extend(sorted(question.right) for question in slab)
            flat = [row for candidates in rows for row in candidates]
            starts.extend(len(row.context) for row in flat)
            work += np.sum([(row.tokens, row.pairs, len(row.answer)) for row in flat], axis=0)
            for name, dense in _dense(flat, length).items():
                wide[name].append(dense)
        small = {"mask": np.array([starts]), "choice_start_end": np.array([ends[:-1], ends[1:]]).T}
        if not training:
            stops = np.cumsum([0, *map(len, right)])
            small["answer_idx"] = np.array([[index for each in right for index in each]])
            small["answer_start_end"] = np.array([stops[:-1], stops[1:]]).T
        for name, matrix in small.items():
            wide[name] = SparseWriter(file, name, matrix.shape[1])
            wide[name].append(matrix)
        for writer in wide.values():
            writer.close()
        file.attrs[WORK] = work / max(1, len(right))
    partial.replace(path)
    return len(right)


def _dense(rows: Sequence[Filled], length: int) -> dict[str, np.ndarray]:
    """The rows' matrices: `text`, `target`, `logit_mask` [rows, length] and `position` [2 * rows, length]."""
    text, target, logit_mask = (np.zeros((len(rows), length), dtype=np.int64) for _ in range(3))
    position = np.zeros((len(rows), 2, length), dtype=np.int64)
    for i, row in enumerate(rows):
        a, end = len(row.context), row.tokens
        text[i, :end] = [*row.context, row.start, *row.answer[:-1]]
        target[i, a:end] = row.answer
        logit_mask[i, a:end] = 1
        position[i, 0, :a] = np.arange(a)
        position[i, 0, a:end] = row.blank
        position[i, 1, a:end] = np.arange(1, len(row.answer) + 1)
    return {"text": text, "target": target, "logit_mask": logit_mask, "position": position.reshape(-1, length)}
