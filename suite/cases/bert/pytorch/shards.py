"""Pre-training data in HDF5 shards, as NGC's example and the MLPerf submissions lay them out.

`fixed`: matrices `input_ids` `input_mask` `segment_ids` [N, T], `masked_lm_positions` `masked_lm_ids` [N, P], padded
with 0, and `next_sentence_labels` [N]. `variable`: the same without padding, so every entry is an array of its own
length, and no mask. `packed`: several sequences share a row; `input_mask` numbers them from 1, positions of masked
words count through the row, `next_sentence_labels` is [N, S] with `next_sentence_weights`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
from sequences import Sequences, bounds_of, from_padded, join, mean_work

from suite.drivers.events import RunProblem
from suite.drivers.pytorch.prefetch import Ahead

KEYS = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
WORK = "mean_work"
"""Attribute of a shard that prepare.py wrote; others have none."""
AHEAD = 1
"""Shards read while another is trained on."""


def find_shards(folder: Path, key: str, leave_out: str) -> tuple[Path, ...]:
    """The shards of a folder in the order of their numbers; files named after the other part are left out."""
    found = [path for pattern in ("*.hdf5", "*.h5") for path in folder.glob(pattern) if leave_out not in path.name]
    if not found:
        raise RunProblem(f"{folder} ({key}) holds no HDF5 shard: python -m tools data status bert says how to get them")
    return tuple(sorted(found, key=lambda path: [int(part) if part.isdigit() else part for part in _parts(path.name)]))


def _parts(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def read_shard(path: Path) -> Sequences:
    """One shard of any of the three layouts. Raises RunProblem for anything else."""
    with _open(path) as file:
        if file["input_ids"].dtype == object:
            return _read_variable(file)
        if "next_sentence_weights" in file:
            return _read_packed(file)
        if "input_mask" not in file:
            raise RunProblem(f"{path} has no 'input_mask' (have: {', '.join(file)}): its padding cannot be told")
        lengths = file["input_mask"][:].sum(1, dtype=np.int64)
        tokens, segments, places, ids, next_class = (file[key][:] for key in KEYS)
        return from_padded(tokens, segments, lengths, places, ids, next_class.reshape(len(tokens)))


def count_sequences(path: Path) -> int:
    """How many sequences a shard holds, without reading them."""
    with _open(path) as file:
        if "next_sentence_weights" in file:
            return int((file["next_sentence_weights"][:] > 0).sum())
        return len(file["input_ids"])


def read_work(path: Path) -> tuple[float, float, float] | None:
    """(tokens, pairs of attention, masked places) of a mean sequence, by the shard's own label; None: it has none."""
    with _open(path) as file:
        label = file.attrs.get(WORK)
    return None if label is None else (float(label[0]), float(label[1]), float(label[2]))


def write_shard(path: Path, sequences: Sequences, length: int, predictions: int) -> None:
    """`sequences` in the layout `fixed`, compressed, with the label of their mean work."""
    shape, masked = (len(sequences), length), (len(sequences), predictions)
    real = np.arange(length) < sequences.lengths[:, None]
    asked = np.arange(predictions) < sequences.predictions[:, None]
    columns = {
        "input_ids": (shape, np.int32, real, sequences.tokens),
        "input_mask": (shape, np.int8, real, 1),
        "segment_ids": (shape, np.int8, real, sequences.segments),
        "masked_lm_positions": (masked, np.int32, asked, sequences.places),
        "masked_lm_ids": (masked, np.int32, asked, sequences.ids),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, (size, kind, where, values) in columns.items():
            matrix = np.zeros(size, dtype=kind)
            matrix[where] = values
            file.create_dataset(name, data=matrix, compression="gzip")
        file.create_dataset("next_sentence_labels", data=sequences.next_class.astype(np.int8), compression="gzip")
        file.attrs[WORK] = mean_work(sequences)


class Shards:
    """Training data in many files; each epoch in an order that depends on the seed and the epoch alone."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)

    def epoch(self, seed: int, epoch: int, skip: int = 0) -> Iterator[Sequences]:
        """Shard after shard, each with its sequences mixed, without the first `skip`; whole shards are not read."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self._paths))
        ahead = Ahead(self._mixed(order, seed, epoch, skip), AHEAD)
        try:
            yield from ahead
        finally:
            ahead.close()

    def _mixed(self, order: np.ndarray, seed: int, epoch: int, skip: int) -> Iterator[Sequences]:
        for number in order:
            if skip:
                count = count_sequences(self._paths[number])
                if skip >= count:
                    skip -= count
                    continue
            shard = read_shard(self._paths[number])
            mixed = np.random.default_rng((seed, epoch, int(number))).permutation(len(shard))
            yield shard.take(mixed[skip:])
            skip = 0


def read_all(paths: Sequence[Path]) -> Sequences:
    """All shards at once: for the evaluation."""
    return join([read_shard(path) for path in paths])


def _read_variable(file: h5py.File) -> Sequences:
    tokens, segments, places, ids, next_class = (file[key][:] for key in KEYS)
    return Sequences(
        tokens=np.concatenate(list(tokens)).astype(np.int32),
        segments=np.concatenate(list(segments)).astype(np.int8),
        bounds=bounds_of([len(row) for row in tokens]),
        places=np.concatenate(list(places)).astype(np.int32),
        ids=np.concatenate(list(ids)).astype(np.int32),
        marks=bounds_of([len(row) for row in places]),
        next_class=np.array([int(np.ravel(value)[0]) for value in next_class], dtype=np.int8),
    )


def _read_packed(file: h5py.File) -> Sequences:
    """Rows taken apart: a batch is packed anew, so that it has the same number of sequences every time."""
    tokens, segments, places, ids, next_class = (file[key][:] for key in KEYS)
    owner, present = file["input_mask"][:], file["next_sentence_weights"][:] > 0
    real, masked = owner > 0, places > 0
    members = np.arange(1, present.shape[1] + 1)
    lengths = (owner[:, None, :] == members[:, None]).sum(2)
    owner_of_place = np.where(masked, np.take_along_axis(owner, places.astype(np.int64), axis=1), 0)
    predictions = (owner_of_place[:, None, :] == members[:, None]).sum(2)
    begins = np.cumsum(lengths, axis=1) - lengths
    own = places - np.take_along_axis(begins, np.maximum(owner_of_place - 1, 0), axis=1)
    return Sequences(
        tokens=tokens[real].astype(np.int32),
        segments=segments[real].astype(np.int8),
        bounds=bounds_of(lengths[present]),
        places=own[masked].astype(np.int32),
        ids=ids[masked].astype(np.int32),
        marks=bounds_of(predictions[present]),
        next_class=next_class[present].astype(np.int8),
    )


def _open(path: Path) -> h5py.File:
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise RunProblem(f"{path} is not an HDF5 file ({error}): fetch or prepare it again") from error
    missing = [key for key in KEYS if key not in file]
    if missing:
        have = ", ".join(file) or "nothing"
        file.close()
        raise RunProblem(f"{path} has no {missing[0]!r} (have: {have}): it is no shard of BERT's pre-training data")
    return file
