"""The data of the preset `full`: ReCoRD, in the HDF5 layout that FlagPerf's GLM case reads.

A question is a news passage and a query in which an entity is missing; its candidates are entities of the passage. In
the file each candidate is one row: `text` (parts A and B), `target` and `logit_mask` (what part B predicts, and where),
two rows of `position`, and one value of `mask`, where part B starts. `choice_start_end` and, for the evaluation,
`answer_start_end` into `answer_idx` say which rows are a question's and which of them are right; in training the first
is. All of them are sparse matrices (sparse.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from data import Filled, HeldOut
from sparse import SparseRows

from suite.drivers.events import RunProblem

WORK = "mean_work"
"""Attribute of a file that prepare.py wrote; FlagPerf's have none."""
CHUNK = 4096
"""Rows that are held dense at one time."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A file in memory: candidates end to end, and which of them belong together."""

    text: np.ndarray
    """Parts A and B of all candidates, without padding."""
    bounds: np.ndarray
    """Candidate i is text[bounds[i] : bounds[i + 1]]."""
    separator: np.ndarray
    blank: np.ndarray
    answers: np.ndarray
    """[candidates, longest answer]."""
    answer_length: np.ndarray
    choices: np.ndarray
    """[questions, 2]: first and last + 1 of their candidates."""
    right: tuple[frozenset[int], ...]
    """Of each question; empty for training, where it is the first candidate."""

    def filled(self, row: int) -> Filled:
        """One candidate."""
        first, separator = self.bounds[row], self.separator[row]
        answer = self.answers[row, : self.answer_length[row]]
        context = self.text[first : first + separator]
        return Filled(context, self.blank[row], self.text[first + separator], answer)

    def question(self, index: int, limit: int | None = None) -> tuple[Filled, ...]:
        """The candidates of one question, at most `limit`."""
        first, last = self.choices[index]
        return tuple(self.filled(row) for row in range(first, last)[:limit])


def read(path: Path, length: int, max_answer: int) -> Record:
    """The file, checked against the shape that the run packs it into. Raises RunProblem where it does not fit."""
    with _open(path) as file:
        separator = SparseRows(file, "mask").all().reshape(-1)
        text, bounds, blank, answers = _candidates(file, separator)
        answer_length = (answers > 0).sum(1)
        choices = SparseRows(file, "choice_start_end").all()
        right = _right(file) if "answer_start_end" in file else ()
    for what, longest, limit, key in (
        ("row", int(np.diff(bounds).max()), length, "sequence_length"),
        ("answer", int(answer_length.max()), max_answer, "max_answer"),
    ):
        if longest > limit:
            raise RunProblem(
                f"{path} has {what}s of {longest} tokens, {key} is {limit}: prepare it anew with that limit"
            )
    return Record(
        text=text,
        bounds=bounds,
        separator=separator,
        blank=blank,
        answers=answers,
        answer_length=answer_length,
        choices=choices,
        right=right,
    )


def _candidates(file: h5py.File, separator: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(text, bounds, blank, answers), slab by slab: dense, a whole training file would take 10 GB."""
    matrices = {name: SparseRows(file, name) for name in ("text", "position", "target", "logit_mask")}
    texts, lengths, blanks, answers = [], [], [], []
    for rows in _slabs(len(separator)):
        dense = {name: matrices[name][rows] for name in ("text", "target", "logit_mask")}
        starts = separator[rows]
        answer_length = dense["logit_mask"].astype(bool).sum(1)
        span = starts[:, None] + np.arange(answer_length.max())
        answer = np.take_along_axis(dense["target"], span.clip(max=dense["target"].shape[1] - 1), axis=1)
        answers.append(np.where(np.arange(span.shape[1]) < answer_length[:, None], answer, 0).astype(np.int32))
        lengths.append(starts + answer_length)
        texts.append(dense["text"][np.arange(dense["text"].shape[1]) < lengths[-1][:, None]].astype(np.int32))
        position = matrices["position"][slice(2 * rows.start, 2 * rows.stop)][::2]
        blanks.append(position[np.arange(len(starts)), starts])
    widest = max(answer.shape[1] for answer in answers)
    padded = [np.pad(answer, ((0, 0), (0, widest - answer.shape[1]))) for answer in answers]
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return np.concatenate(texts), bounds, np.concatenate(blanks), np.concatenate(padded)


def _slabs(rows: int) -> Iterator[slice]:
    for first in range(0, rows, CHUNK):
        yield slice(first, min(rows, first + CHUNK))


def _right(file: h5py.File) -> tuple[frozenset[int], ...]:
    indices = SparseRows(file, "answer_idx").all().reshape(-1)
    return tuple(frozenset(indices[a:b].tolist()) for a, b in SparseRows(file, "answer_start_end").all())


class Built(Sequence):
    """Items made when they are asked for."""

    def __init__(self, count: int, build: Callable) -> None:
        self._count = count
        self._build = build

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._build(index)


class RecordTraining:
    """The training questions, the right candidate of each first."""

    def __init__(self, record: Record, choices: int) -> None:
        self._record = record
        self._choices = choices

    def __len__(self) -> int:
        return len(self._record.choices)

    def epoch(self, seed: int, epoch: int) -> Sequence[Sequence[Filled]]:
        """All questions in the order of (seed, epoch)."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self))
        return Built(len(order), lambda index: self._record.question(order[index], self._choices))


def held_out_questions(record: Record) -> Sequence[HeldOut]:
    """The evaluation: every entity of a passage is a candidate."""
    return Built(len(record.choices), lambda index: HeldOut(record.question(index), record.right[index]))


def mean_work(path: Path) -> tuple[float, float, float] | None:
    """(tokens, pairs of attention, predicted tokens) of a mean question, by the file's own label; None: it has none."""
    with _open(path) as file:
        label = file.attrs.get(WORK)
    return None if label is None else (float(label[0]), float(label[1]), float(label[2]))


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise RunProblem(f"{path} is not an HDF5 file ({error}): run python -m tools data prepare glm") from error
