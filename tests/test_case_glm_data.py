"""GLM's data: the CLDR phrases of mini, ReCoRD in FlagPerf's layout, and how both become batches."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from suite.drivers.events import RunProblem
from tests.case_glm import CASE, CASE_DIR, DATA_DIR, TINY_FULL, params, task, write_record

Filled, Frame, Place = CASE.data.Filled, CASE.data.Frame, CASE.data.Place


@pytest.fixture(scope="module")
def mini() -> Any:
    made = task(params("mini"))
    made.prepare_data()
    return made


@pytest.fixture(scope="module")
def phrases() -> tuple[Any, Any]:
    return CASE.cloze.read_phrases(DATA_DIR / "cldr_en_de.tsv.xz")


# The phrases


def test_no_held_out_text_is_trained_on(phrases: tuple[Any, Any]) -> None:
    train, reserved = phrases
    trained = {text for phrase in train for text in phrase[:2]}
    assert trained.isdisjoint(text for phrase in reserved for text in phrase[:2])
    assert (len(train), len(reserved)) == (7333, 600)


def test_held_out_questions_are_fixed(mini: Any) -> None:
    again = task(params("mini"), seed=99)
    again.prepare_data()
    assert len(mini.held_out) == 300
    assert again.held_out == mini.held_out


def test_held_out_questions_offer_four_different_words_and_no_place_is_favoured(mini: Any) -> None:
    for question in mini.held_out:
        assert len({tuple(candidate.answer) for candidate in question.candidates}) == 4
        assert len({tuple(candidate.context) for candidate in question.candidates}) == 1
    places = Counter(next(iter(question.right)) for question in mini.held_out)
    assert all(45 < places[place] < 105 for place in range(4))


def test_a_question_reads_as_it_should(mini: Any) -> None:
    tokenizer = Tokenizer.from_file(str(DATA_DIR / "tokenizer.json"))
    words = CASE.cloze.Words(tokenizer)
    phrase = words.phrase(CASE.cloze.Phrase("May 2, 2001", "2. Mai 2001", "date"))
    filled = phrase.blanked(1, 2)
    assert tokenizer.decode(list(filled.context), skip_special_tokens=False) == "[CLS] May 2, 2001[SEP] 2.[MASK]"
    assert tokenizer.decode(list(filled.answer), skip_special_tokens=False) == " Mai 2001[EOP]"
    assert filled.context[filled.blank] == CASE.cloze.MASK


def test_mean_work_is_that_of_the_data(mini: Any) -> None:
    rows = [row for candidates in mini.questions.epoch(5, 1) for row in candidates]
    measured = np.mean([(row.tokens, row.pairs, len(row.answer)) for row in rows], axis=0)
    assert measured == pytest.approx(CASE.cloze.MEAN_WORK, rel=0.01)


def test_the_shipped_tokenizer_is_the_one_that_prepare_makes(tmp_path: Path) -> None:
    assert CASE.prepare.main(["--preset", "mini", "--data-dir", str(tmp_path)]) == 0
    assert (tmp_path / "tokenizer.json").read_text() == (DATA_DIR / "tokenizer.json").read_text()


def test_data_toml_knows_the_shipped_files() -> None:
    entries = tomllib.loads((CASE_DIR / "data.toml").read_text())["file"]
    shipped = {entry["path"].removeprefix("case:"): entry for entry in entries if entry["path"].startswith("case:")}
    assert sorted(shipped) == ["cldr_en_de.tsv.xz", "tokenizer.json"]
    for name, entry in shipped.items():
        content = (DATA_DIR / name).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


# Order and shards


def trained(seed: int, epoch: int, rank: int, world: int, skip: int = 0) -> list[Any]:
    one = task(params("mini", train_batch_size=32 // world), seed=seed, rank=rank, world=world)
    one.prepare_data()
    return list(one.train_batches(epoch, skip))


def test_two_ranks_share_the_global_batches_of_one() -> None:
    alone = trained(1, 1, 0, 1)
    shares = [trained(1, 1, rank, 2) for rank in range(2)]
    assert len(alone) == len(shares[0]) == len(shares[1]) == 7333 // 32
    for whole, first, second in zip(alone, *shares):
        for name in ("answer", "separator", "blank", "answer_length"):
            assert torch.equal(whole[name], torch.cat([first[name], second[name]])), name


def test_order_depends_on_seed_and_epoch_alone() -> None:
    first = trained(1, 1, 0, 1)
    assert all(torch.equal(a["tokens"], b["tokens"]) for a, b in zip(first, trained(1, 1, 0, 1)))
    for other in (trained(2, 1, 0, 1), trained(1, 2, 0, 1)):
        assert not torch.equal(first[0]["answer"], other[0]["answer"])


def test_skipping_continues_exactly() -> None:
    whole, rest = trained(3, 2, 1, 2), trained(3, 2, 1, 2, skip=200)
    assert len(rest) == len(whole) - 200
    assert torch.equal(whole[200]["tokens"], rest[0]["tokens"])


@given(count=st.integers(0, 200), size=st.integers(1, 9), world=st.integers(1, 5), skip=st.integers(0, 5))
def test_shards_are_disjoint_equal_and_whole(count: int, size: int, world: int, skip: int) -> None:
    order = list(range(count))
    shares = [list(CASE.data.shards(order, size, Place(rank, world), skip)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) == size for share in shares for batch in share)
    seen = sorted(index for share in shares for batch in share for index in batch)
    together = size * world
    assert seen == order[skip * together : count // together * together]


def test_the_evaluation_is_shared_without_overlap() -> None:
    shares = []
    for rank in range(3):
        one = task(params("mini"), rank=rank, world=3)
        one.prepare_data()
        shares.append(one.held_out)
    assert [len(share) for share in shares] == [100, 100, 100]
    contexts = [(tuple(q.candidates[0].context), tuple(q.candidates[0].answer)) for share in shares for q in share]
    assert len(contexts) == 300


# Packing


FRAME = Frame(choices=2, length=12, max_answer=3, pad_multiple=0)


def test_a_packed_row() -> None:
    batch = FRAME.pack([[Filled([5, 1, 6], 1, 2, [8, 9, 3])]])
    assert batch["tokens"][0].tolist() == [[5, 1, 6, 2, 8, 9] + [0] * 6] * 2
    assert batch["answer"][0, 0].tolist() == [8, 9, 3]
    marks = {name: batch[name].tolist() for name in ("separator", "blank", "answer_length", "choices")}
    assert marks == {"separator": [[3, 3]], "blank": [[1, 1]], "answer_length": [[3, 3]], "choices": [1]}


def test_rows_may_be_as_wide_as_the_longest_needs() -> None:
    frame = Frame(choices=1, length=12, max_answer=3, pad_multiple=8)
    assert frame.pack([[Filled([5, 1], 1, 2, [8])]])["tokens"].shape == (1, 1, 8)
    assert frame.pack([[Filled([5] * 7, 1, 2, [8, 9])]])["tokens"].shape == (1, 1, 12)


def test_padding_and_repeated_candidates_are_not_counted() -> None:
    made = task(params(**{**TINY_FULL, "train_choices": 2}))
    batch = FRAME.pack([[Filled([5, 1, 6], 1, 2, [8, 9])], [Filled([5, 1], 1, 2, [8]), Filled([5, 1], 1, 2, [9])]])
    assert made.count(batch) == {"samples": 2, "tokens": 5 + 3 + 3}


ANSWERS = st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=3), min_size=2, max_size=6)


@given(answers=ANSWERS, seed=st.integers(0, 2**31 - 1))
def test_shuffling_deals_the_same_answers_to_the_same_contexts(answers: list[list[int]], seed: int) -> None:
    frame = Frame(choices=1, length=12, max_answer=3, pad_multiple=0)
    questions = [[Filled([5, 100 + i, 1], 2, 2, answer)] for i, answer in enumerate(answers)]
    batch = frame.pack(questions)
    mixed = CASE.data.shuffle_answers(batch, torch.Generator().manual_seed(seed))
    dealt = []
    for i in range(len(questions)):
        length = int(mixed["answer_length"][i, 0])
        answer = mixed["answer"][i, 0, :length].tolist()
        assert mixed["tokens"][i, 0].tolist() == [5, 100 + i, 1, 2, *answer[:-1]] + [0] * (12 - 3 - length)
        dealt.append(answer)
    assert sorted(dealt) == sorted(answers)


def test_random_rows_are_full_and_never_the_same() -> None:
    made = task(params(**TINY_FULL))
    batches = made.synthetic_batches()
    first, second = next(batches), next(batches)
    assert bool((first["separator"] + first["answer_length"] == 64).all())
    assert not torch.equal(first["tokens"], second["tokens"])
    assert made.count(first)["tokens"] == 2 * 4 * 64
    other = next(task(params(**TINY_FULL), rank=1, world=2).synthetic_batches())
    assert not torch.equal(first["tokens"], other["tokens"])


# ReCoRD


@pytest.fixture
def record_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(CASE.prepare, "case_params", lambda: params(**TINY_FULL))
    folder = write_record(tmp_path / "data")
    assert CASE.prepare.main(["--data-dir", str(folder)]) == 0
    return folder


def train_file(folder: Path) -> Path:
    return folder / str(params()["train_data"])


def test_record_becomes_flagperfs_matrices(record_dir: Path) -> None:
    with h5py.File(train_file(record_dir)) as file:
        assert sorted(file) == ["choice_start_end", "logit_mask", "mask", "position", "target", "text"]
        assert dict(file["text"].attrs)["h5sparse_format"] == "csr"
        text = CASE.sparse.SparseRows(file, "text").all()
        target = CASE.sparse.SparseRows(file, "target").all()
        scored = CASE.sparse.SparseRows(file, "logit_mask").all().astype(bool)
        start = CASE.sparse.SparseRows(file, "mask").all().reshape(-1)
        position = CASE.sparse.SparseRows(file, "position").all().reshape(len(text), 2, -1)
        choices = CASE.sparse.SparseRows(file, "choice_start_end").all()
    assert choices.tolist() == [[0, 4], [4, 8], [8, 12], [12, 16]]
    assert text.shape == (16, 64)
    for row in range(16):
        assert text[row, start[row]] == 5 + 2 * 29, "part B opens with the first id after the vocabulary"
        blank = text[row].tolist().index(4)
        places = np.flatnonzero(scored[row])
        assert places[0] == start[row]
        assert position[row, 0, places].tolist() == [blank] * len(places)
        assert position[row, 1, places].tolist() == list(range(1, len(places) + 1))
        assert text[row, places[1:]].tolist() == target[row, places[:-1]].tolist()


def test_the_file_reads_back_as_it_was_asked(record_dir: Path) -> None:
    read = CASE.record.read(train_file(record_dir), 64, 8)
    encoder = CASE.superglue.Encoder(record_dir / CASE.prepare.VOCABULARY, vocab_size=200, length=64, max_answer=8)
    source = CASE.superglue.read_questions(record_dir / "ReCoRD/train.jsonl", training_choices=4)
    for index, question in enumerate(source):
        for wrote, got in zip(encoder.filled(question), read.question(index), strict=True):
            assert (list(got.context), got.blank, list(got.answer)) == (wrote.context, wrote.blank, wrote.answer)


def test_every_entity_is_a_candidate_of_the_evaluation_once(record_dir: Path) -> None:
    questions = list(CASE.superglue.read_questions(record_dir / "ReCoRD/val.jsonl", training_choices=None))
    assert [question.candidates for question in questions[:2]] == [("Oder", "Breslau", "Stettin", "Anna")] * 2
    assert [question.right for question in questions] == [{0}, {1}, {0}, {1}]
    held_out = CASE.record.held_out_questions(CASE.record.read(record_dir / str(params()["eval_data"]), 64, 8))
    assert [question.right for question in held_out] == [{0}, {1}, {0}, {1}]


def test_a_long_passage_is_cut_and_the_query_kept(record_dir: Path) -> None:
    encoder = CASE.superglue.Encoder(record_dir / CASE.prepare.VOCABULARY, vocab_size=200, length=24, max_answer=8)
    question = CASE.superglue.Question("a " * 100, "b @placeholder c", ("d", "e f"), frozenset({0}))
    for filled in encoder.filled(question):
        assert filled.tokens <= 24
        assert filled.context[filled.blank] == 4
        assert len(filled.context) - filled.blank == 2


def test_work_is_on_the_files_label(record_dir: Path) -> None:
    made = task(params(**TINY_FULL), data_dir=record_dir)
    flops, formula = made.flops_per_sample()
    read = CASE.record.read(train_file(record_dir), 64, 8)
    rows = [row for index in range(4) for row in read.question(index)]
    expected = sum(made.shape.training_flops(row.tokens, row.pairs, len(row.answer)) for row in rows) / 4
    assert flops == pytest.approx(expected)
    assert formula == "counted"


def test_a_file_without_a_label_has_no_count(record_dir: Path) -> None:
    with h5py.File(train_file(record_dir), "r+") as file:
        del file.attrs[CASE.record.WORK]
    assert task(params(**TINY_FULL), data_dir=record_dir).flops_per_sample() is None


@pytest.mark.parametrize(
    ("length", "max_answer", "said"),
    [(40, 8, "sequence_length is 40"), (64, 2, "max_answer is 2")],
)
def test_a_file_for_another_shape_is_refused(record_dir: Path, length: int, max_answer: int, said: str) -> None:
    with pytest.raises(RunProblem, match=said):
        CASE.record.read(train_file(record_dir), length, max_answer)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.hdf5"
    path.write_text("not HDF5")
    with pytest.raises(RunProblem, match="not an HDF5 file"):
        CASE.record.read(path, 64, 8)
    with h5py.File(path, "w") as file:
        file["mask"] = [1, 2]
    with pytest.raises(RunProblem, match="not a matrix of compressed sparse rows"):
        CASE.record.read(path, 64, 8)
    with h5py.File(path, "w") as file:
        file["images"] = [1]
    with pytest.raises(RunProblem, match=r"no 'mask' \(have: images\)"):
        CASE.record.read(path, 64, 8)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "ReCoRD/train.jsonl").write_text("{}\n"), "train.jsonl:1 is not a line"),
        (lambda folder: (folder / "ReCoRD/val.jsonl").unlink(), "val.jsonl is missing"),
        (lambda folder: (folder / CASE.prepare.VOCABULARY).unlink(), "vocab.txt is missing"),
        (lambda folder: (folder / CASE.prepare.VOCABULARY).write_text("a\nb\n"), r"has no \[CLS\], \[MASK\], \[SEP\]"),
    ],
)
def test_prepare_says_what_is_wrong_in_one_sentence(
    record_dir: Path, capsys: pytest.CaptureFixture[str], spoil: Any, said: str
) -> None:
    spoil(record_dir)
    capsys.readouterr()
    assert CASE.prepare.main(["--data-dir", str(record_dir)]) == 4
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(said, error)


def test_prepare_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert CASE.prepare.main([]) == 4
    assert "--data-dir None is no folder" in capsys.readouterr().err
