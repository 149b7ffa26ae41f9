"""BERT's files: three layouts of HDF5 shards, and plain text that becomes shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from tests.case_bert import CASE, PLAIN, TINY_FULL, as_lists, params, random_sequences, task

# Shards


def write_variable(path: Path, made: Any) -> None:
    """MLPerf's files without padding: every entry an array of its own length."""
    columns = {
        "input_ids": made.tokens, "segment_ids": made.segments,
        "masked_lm_positions": made.places, "masked_lm_ids": made.ids,
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            bounds = made.marks if name.startswith("masked") else made.bounds
            dataset = file.create_dataset(name, (len(made),), dtype=h5py.vlen_dtype(np.int16))
            for i in range(len(made)):
                dataset[i] = values[bounds[i] : bounds[i + 1]]
        labels = file.create_dataset("next_sentence_labels", (len(made),), dtype=h5py.vlen_dtype(np.int8))
        for i in range(len(made)):
            labels[i] = made.next_class[i : i + 1]


def write_packed(path: Path, made: Any, members: int = 3) -> None:
    """MLPerf's files with up to three sequences a row of 64, numbered by the mask."""
    count = -(-len(made) // members)
    shape = {"input_ids": 64, "input_mask": 64, "segment_ids": 64, "positions": 64, "masked_lm_positions": 18,
             "masked_lm_ids": 18, "next_sentence_positions": 3, "next_sentence_labels": 3,
             "next_sentence_weights": 3}  # fmt: skip
    matrices = {name: np.zeros((count, width), dtype=np.int32) for name, width in shape.items()}
    for row in range(count):
        begin = asked = 0
        for member, i in enumerate(range(row * members, min((row + 1) * members, len(made)))):
            one = made.rows(i, i + 1)
            text, masked = slice(begin, begin + len(one.tokens)), slice(asked, asked + len(one.places))
            matrices["input_ids"][row, text] = one.tokens
            matrices["input_mask"][row, text] = member + 1
            matrices["segment_ids"][row, text] = one.segments
            matrices["positions"][row, text] = np.arange(len(one.tokens))
            matrices["masked_lm_positions"][row, masked] = begin + one.places
            matrices["masked_lm_ids"][row, masked] = one.ids
            matrices["next_sentence_positions"][row, member] = begin
            matrices["next_sentence_labels"][row, member] = one.next_class[0]
            matrices["next_sentence_weights"][row, member] = 1
            begin, asked = text.stop, masked.stop
    with h5py.File(path, "w") as file:
        for name, matrix in matrices.items():
            file[name] = matrix


WRITERS = {
    "fixed": lambda path, made: CASE.shards.write_shard(path, made, 64, 6),
    "variable": write_variable,
    "packed": write_packed,
}


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_is_read_as_it_was_written(layout: str, tmp_path: Path) -> None:
    made = random_sequences(np.random.default_rng(3).integers(8, 21, 14).tolist())
    WRITERS[layout](tmp_path / "part.hdf5", made)
    assert as_lists(CASE.shards.read_shard(tmp_path / "part.hdf5")) == as_lists(made)
    assert CASE.shards.count_sequences(tmp_path / "part.hdf5") == 14


def test_an_independent_reader_of_the_published_layout_reads_ours(tmp_path: Path) -> None:
    """As NGC's example reads: labels are -1 but at masked places; the first 0 among these ends them."""
    made = random_sequences([20, 64, 33])
    CASE.shards.write_shard(tmp_path / "part.hdf5", made, 64, 6)
    with h5py.File(tmp_path / "part.hdf5") as file:
        columns = {name: np.asarray(file[name]) for name in file}
    assert sorted(columns) == [
        "input_ids", "input_mask", "masked_lm_ids", "masked_lm_positions", "next_sentence_labels", "segment_ids"
    ]  # fmt: skip
    assert columns["input_ids"].shape == columns["input_mask"].shape == columns["segment_ids"].shape == (3, 64)
    for i in range(3):
        one, padded = made.rows(i, i + 1), np.flatnonzero(columns["masked_lm_positions"][i] == 0)
        end = padded[0] if len(padded) else 6
        labels = np.full(64, -1)
        labels[columns["masked_lm_positions"][i, :end]] = columns["masked_lm_ids"][i, :end]
        expected = np.full(64, -1)
        expected[one.places] = one.ids
        assert labels.tolist() == expected.tolist()
        assert columns["input_mask"][i].tolist() == [1] * len(one.tokens) + [0] * (64 - len(one.tokens))
        assert columns["input_ids"][i, : len(one.tokens)].tolist() == one.tokens.tolist()
        assert columns["next_sentence_labels"][i] == one.next_class[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(12):
        CASE.shards.write_shard(tmp_path / f"training_{number}.hdf5", random_sequences([20] * 5, number), 64, 6)
    CASE.shards.write_shard(tmp_path / "test_0.hdf5", random_sequences([20] * 3, 99), 64, 6)
    return tmp_path


def test_shards_are_found_in_the_order_of_their_numbers(folder: Path) -> None:
    found = CASE.shards.find_shards(folder, "train_data", leave_out="test")
    assert [path.stem for path in found] == [f"training_{number}" for number in range(12)]
    assert [path.stem for path in CASE.shards.find_shards(folder, "eval_data", leave_out="training")] == ["test_0"]


def test_an_epoch_is_every_sequence_once_in_a_new_order(folder: Path) -> None:
    made = CASE.shards.Shards(CASE.shards.find_shards(folder, "train_data", leave_out="test"))
    epochs = [[row for chunk in made.epoch(1, epoch) for row in as_lists(chunk)] for epoch in (1, 2, 1)]
    assert epochs[0] == epochs[2] != epochs[1]
    assert Counter(epochs[0]) == Counter(epochs[1])
    assert len(epochs[0]) == 60


@pytest.mark.parametrize("skip", [0, 3, 5, 17, 60])
def test_skipped_shards_are_not_read(folder: Path, skip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CASE.shards.Shards(CASE.shards.find_shards(folder, "train_data", leave_out="test"))
    whole = [row for chunk in made.epoch(1, 1) for row in as_lists(chunk)]
    read, original = [], CASE.shards.read_shard
    monkeypatch.setattr(CASE.shards, "read_shard", lambda path: read.append(path) or original(path))
    assert [row for chunk in made.epoch(1, 1, skip) for row in as_lists(chunk)] == whole[skip:]
    assert len(read) == 12 - skip // 5


def test_files_that_are_no_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunProblem, match="holds no HDF5 shard: python -m tools data status bert"):
        CASE.shards.find_shards(tmp_path, "train_data", leave_out="test")
    path = tmp_path / "part.hdf5"
    path.write_text("text")
    with pytest.raises(RunProblem, match="is not an HDF5 file"):
        CASE.shards.read_shard(path)
    with h5py.File(path, "w") as file:
        file["images"] = [1]
    with pytest.raises(RunProblem, match=r"no 'input_ids' \(have: images\)"):
        CASE.shards.read_shard(path)
    CASE.shards.write_shard(path, random_sequences([9, 9]), 64, 6)
    with h5py.File(path, "r+") as file:
        del file["input_mask"]
    with pytest.raises(RunProblem, match="no 'input_mask'"):
        CASE.shards.read_shard(path)


# From plain text


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "king", "spoke", "to", "his", "son", "un", "##kind", "."]


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    random = np.random.default_rng(0)
    words = ["The", "king", "spoke", "to", "his", "son", "unkind", "."]
    documents = [
        "\n".join(" ".join(random.choice(words, 6)) for _ in range(int(random.integers(4, 12)))) for _ in range(30)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    (tmp_path / "data").mkdir()
    return {"text": tmp_path / "text.txt", "vocab": tmp_path / "vocab.txt", "data": tmp_path / "data"}


def prepare(corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch, *more: str, **changes: Any) -> int:
    values = params(**{**TINY_FULL, **PLAIN, **changes})
    monkeypatch.setattr(CASE.prepare, "case_params", lambda preset: values)
    argv = ["--data-dir", str(corpus["data"]), "--text", str(corpus["text"]), "--vocab", str(corpus["vocab"]), *more]
    return int(CASE.prepare.main(argv))


def test_text_becomes_shards_that_the_case_trains_on(corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepare(corpus, monkeypatch, "--shards", "2", "--duplicates", "3") == 0
    one = task(params(**{**TINY_FULL, **PLAIN}), data_dir=corpus["data"])
    one.prepare_data()
    batches = list(one.train_batches(1))
    assert len(batches) > 20
    model = one.build().train()
    assert torch.isfinite(one.loss(model, batches[0]))
    assert len(one.held_out) > 2
    found = CASE.shards.find_shards(corpus["data"] / "2048_shards_uncompressed", "train_data", leave_out="test")
    first = CASE.shards.read_shard(found[0])
    flops, formula = one.flops_per_sample()
    assert flops == pytest.approx(one.shape.training_flops(*CASE.sequences.mean_work(first)))
    assert formula == "counted"


def test_prepared_sequences_are_well_formed(corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepare(corpus, monkeypatch) == 0
    (path,) = CASE.shards.find_shards(corpus["data"] / "2048_shards_uncompressed", "train_data", leave_out="test")
    made = CASE.shards.read_shard(path)
    for tokens, segments, places, ids, _ in as_lists(made):
        whole = np.array(tokens)
        whole[list(places)] = ids
        assert whole[0] == 2
        assert (whole == 3).sum() == 2
        assert whole[-1] == 3
        assert list(segments) == [0] * (len(whole) - sum(segments)) + [1] * sum(segments)
        assert whole[len(whole) - sum(segments) - 1] == 3, "the first [SEP] belongs to the first segment"
        assert len(places) == min(10, max(1, round(len(whole) * 0.15)))
        assert not {2, 3} & set(ids)
    assert 0.35 < made.next_class.mean() < 0.75
    assert made.lengths.max() == 64


def test_the_same_seed_writes_the_same_and_another_does_not(
    corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = []
    for seed in ("12345", "12345", "1"):
        assert prepare(corpus, monkeypatch, "--seed", seed) == 0
        contents.append(as_lists(CASE.shards.read_shard(corpus["data"] / "2048_shards_uncompressed/training_0.hdf5")))
    assert contents[0] == contents[1] != contents[2]


def test_a_pair_is_one_text_or_two(corpus: dict[str, Path]) -> None:
    """Documents of one number each: who follows is of the same document, who does not is not."""
    documents = [[[number] * 5 for _ in range(8)] for number in range(10, 20)]
    made = list(CASE.instances.pairs(documents, 32, np.random.default_rng(0)))
    assert all(len(set(pair.first)) == len(set(pair.second)) == 1 for pair in made)
    assert all((pair.first[0] != pair.second[0]) == pair.elsewhere for pair in made)
    assert all(len(pair.first) >= 1 and len(pair.first) + len(pair.second) <= 29 for pair in made)
    assert {pair.first[0] for pair in made} == set(range(10, 20))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda corpus: corpus["vocab"].unlink(), "vocab.txt is missing"),
        (lambda corpus: corpus["vocab"].write_text("a\nb\n"), r"has no [CLS], [MASK], [PAD], [SEP], [UNK]"),
        (lambda corpus: corpus["vocab"].write_text("\n".join(PIECES[1:] + PIECES[:1])), "begins with '[UNK]'"),
        (lambda corpus: corpus["text"].write_text("the king\n"), "has 1 documents"),
        (lambda corpus: corpus["text"].unlink(), "text.txt is missing"),
        (lambda corpus: corpus["data"].rmdir(), "is no folder"),
    ],
)
def test_prepare_says_what_is_wrong_in_one_sentence(
    corpus: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil: Any, said: str
) -> None:
    spoil(corpus)
    assert prepare(corpus, monkeypatch) == 4
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert said in error


@pytest.mark.parametrize(
    ("more", "said"),
    [(("--duplicates", "0"), "--duplicates 0 is not within"), (("--held-out", "2"), "--held-out 2.0 is not within")],
)
def test_options_out_of_range_are_refused(
    corpus: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    said: str,
) -> None:
    assert prepare(corpus, monkeypatch, *more) == 4
    assert said in capsys.readouterr().err


def test_presets_without_files_to_prepare_are_refused(
    corpus: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for preset, said in (("mini", "nothing to prepare"), ("huge", "none of full")):
        assert CASE.prepare.main(["--data-dir", str(corpus["data"]), "--preset", preset]) == 4
        assert said in capsys.readouterr().err
