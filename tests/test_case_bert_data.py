"""BERT's data: which words are hidden, the plays of mini, and how sequences become batches."""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.drivers.events import RunProblem
from tests.case_bert import CASE, CASE_DIR, DATA_DIR, TINY_FULL, as_lists, params, random_sequences, task

Frame, Place = CASE.data.Frame, CASE.data.Place
TEXT = CASE.characters.read_text(DATA_DIR / "shakespeare.txt.xz")


@pytest.fixture(scope="module")
def mini() -> Any:
    made = task(params("mini"))
    made.prepare_data()
    return made


# Masking


def test_four_fifths_become_the_mask_a_tenth_stays_and_a_tenth_is_any_word() -> None:
    tokens = np.random.default_rng(1).integers(5, 1000, (2000, 64))
    allowed = np.ones_like(tokens, dtype=bool)
    allowed[:, 0] = False
    words = CASE.masking.Words(4, 5, 1000)
    hidden, places, ids = CASE.masking.hide(tokens, allowed, np.full(2000, 9), words, np.random.default_rng(2))
    assert places.shape == ids.shape == (2000, 9)
    assert np.all(np.diff(places) > 0), "no place is drawn twice, and they come in order"
    assert np.array_equal(np.take_along_axis(tokens, places, 1), ids)
    shown = np.take_along_axis(hidden, places, 1)
    assert np.mean(shown == 4) == pytest.approx(0.8, abs=0.01)
    assert np.mean(shown == ids) == pytest.approx(0.1, abs=0.01)
    assert hidden[:, 0].tolist() == tokens[:, 0].tolist()
    assert np.sum(hidden != tokens) == np.sum(shown != ids)
    assert np.ptp(np.bincount(places.ravel(), minlength=64)[1:]) < 150, "every place is drawn about 286 times"


def test_a_short_sequence_has_no_more_masks_than_places() -> None:
    allowed = np.array([[False, True, False, True], [False, True, True, True]])
    words = CASE.masking.Words(4, 5, 99)
    _, places, ids = CASE.masking.hide(np.full((2, 4), 7), allowed, np.array([3, 2]), words, np.random.default_rng(0))
    assert places[0].tolist() == [1, 3]
    assert (ids > 0).sum(1).tolist() == [2, 2]


# The plays


def test_no_held_out_text_is_trained_on(mini: Any) -> None:
    cut = len(mini.source.train)
    assert cut + len(mini.source.reserved) == len(TEXT)
    letters = dict(enumerate(sorted(set(TEXT[:cut])), CASE.characters.FIRST))
    assert "".join(letters[int(i)] for i in mini.source.train) == TEXT[:cut]
    assert "".join(letters[int(i)] for i in mini.source.reserved) == TEXT[cut:]
    length = mini.frame.length // 2
    trained = {tuple(row) for row in np.lib.stride_tricks.sliding_window_view(mini.source.train, length)[::length]}
    asked = [tuple(row) for row in np.lib.stride_tricks.sliding_window_view(mini.source.reserved, length)[::length]]
    assert sum(row in trained for row in asked) == 0


def test_held_out_sequences_are_fixed(mini: Any) -> None:
    again = task(params("mini"), seed=99)
    again.prepare_data()
    assert len(mini.held_out) == 1000
    assert as_lists(again.held_out) == as_lists(mini.held_out)
    assert 450 < mini.held_out.next_class.sum() < 550


def test_a_pair_reads_as_it_should(mini: Any) -> None:
    letters = ["", "?", "[CLS]", "[SEP]", "_", *sorted(set(TEXT[: len(mini.source.train)]))]
    for index in range(50):
        row = mini.held_out.rows(index, index + 1)
        tokens = row.tokens.copy()
        assert len(tokens) == 64
        assert len(row.places) == params("mini")["max_predictions"] == 9
        tokens[row.places] = row.ids
        text = "".join(letters[token] for token in tokens)
        first, second = text.removeprefix("[CLS]").removesuffix("[SEP]").split("[SEP]")
        assert (len(first), len(second)) == (30, 31)
        assert (first + second in TEXT) == (row.next_class[0] == 0)
        assert row.segments.tolist() == [0] * 32 + [1] * 32


def test_each_epoch_is_cut_anew_and_each_seed_too(mini: Any) -> None:
    parts = [next(mini.source.epoch(seed, epoch)) for seed, epoch in ((1, 1), (1, 2), (2, 1), (1, 1))]
    assert [len(part) for part in parts[1:]] == [len(parts[0])] * 3
    assert np.array_equal(parts[0].tokens, parts[3].tokens)
    assert not np.array_equal(parts[0].tokens, parts[1].tokens)
    assert not np.array_equal(parts[0].tokens, parts[2].tokens)


@pytest.mark.parametrize(
    ("text", "length", "vocab_size", "said"),
    [("abc" * 100, 64, 7, "needs 8 tokens, vocab_size is 7"), ("abc" * 100, 64, 64, "too few for sequences of 64")],
)
def test_a_text_that_does_not_fit_is_refused(text: str, length: int, vocab_size: int, said: str) -> None:
    with pytest.raises(RunProblem, match=said):
        CASE.characters.Characters(text, length, vocab_size)


def test_a_text_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.xz").write_text("plain")
    with pytest.raises(RunProblem, match="cannot be read as text packed by xz"):
        CASE.characters.read_text(tmp_path / "text.xz")


def test_data_toml_knows_the_shipped_file() -> None:
    entries = tomllib.loads((CASE_DIR / "data.toml").read_text())["file"]
    (entry,) = [entry for entry in entries if entry["path"].startswith("case:")]
    content = (DATA_DIR / entry["path"].removeprefix("case:")).read_bytes()
    assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


# Order and shares


def trained(rank: int, world: int, skip: int = 0) -> list[Any]:
    one = task(params("mini", train_batch_size=32 // world), rank=rank, world=world)
    one.prepare_data()
    return list(one.train_batches(1, skip))


def test_two_ranks_share_the_global_batches_of_one() -> None:
    alone, shares = trained(0, 1), [trained(rank, 2) for rank in range(2)]
    assert len(alone) == len(shares[0]) == len(shares[1]) > 400
    for whole, first, second in zip(alone, *shares):
        for name in ("tokens", "masked_ids", "next_sentence"):
            assert torch.equal(whole[name], torch.cat([first[name], second[name]]))


def test_a_resumed_run_goes_on_where_it_was() -> None:
    for whole, late in zip(trained(1, 2)[7:], trained(1, 2, skip=7), strict=True):
        assert torch.equal(whole["tokens"], late["tokens"])


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    size=st.integers(1, 6),
    world=st.integers(1, 4),
)
def test_shares_are_disjoint_equal_and_whole(counts: list[int], size: int, world: int) -> None:
    chunks = [random_sequences([6 + i % 5 for i in range(count)], seed=count) for count in counts]
    everything = [row for chunk in chunks for row in as_lists(chunk)]
    shares = [list(CASE.data.micro_batches(chunks, size, Place(rank, world))) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) == size for share in shares for batch in share)
    seen = [row for batches in zip(*shares) for batch in batches for row in as_lists(batch)]
    assert seen == everything[: len(everything) // (size * world) * size * world]


def test_the_evaluation_is_shared_without_overlap() -> None:
    whole = random_sequences([10] * 10)
    shares = [as_lists(CASE.data.evaluation_share(whole, Place(rank, 3))) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 3, 3]
    assert Counter(row for share in shares for row in share) == Counter(as_lists(whole))


# Batches


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(6, 64), min_size=1, max_size=12), multiple=st.integers(0, 3))
def test_a_laid_batch_holds_every_sequence_once(lengths: list[int], multiple: int) -> None:
    made = random_sequences(lengths)
    batch = Frame(length=64, predictions=5, pack_multiple=multiple).lay(made)
    tokens, segments = batch["tokens"].flatten(), batch["segments"].flatten()
    positions = batch.get("positions", torch.arange(64).repeat(len(batch["tokens"]), 1)).flatten()
    rows = []
    for b, (first, length) in enumerate(zip(batch["first"].tolist(), batch["length"].tolist())):
        assert first // 64 == (first + length - 1) // 64, "a sequence lies within one row"
        assert positions[first : first + length].tolist() == list(range(length))
        real = batch["masked_ids"][b] > 0
        places = (batch["masked_places"][b][real] - first).tolist()
        text = slice(first, first + length)
        row = (tokens[text].tolist(), segments[text].tolist(), places, batch["masked_ids"][b][real].tolist())
        rows.append((*map(tuple, row), (int(batch["next_sentence"][b]),)))
    assert rows == as_lists(made)
    assert int((tokens > 0).sum()) == sum(lengths)
    if multiple:
        assert len(batch["tokens"]) % multiple == 0
        assert len(batch["tokens"]) <= -(-len(lengths) // multiple) * multiple


def test_short_sequences_fill_far_fewer_rows() -> None:
    lengths = np.random.default_rng(0).integers(64, 513, 96).tolist()
    batch = Frame(length=512, predictions=5, pack_multiple=4).lay(random_sequences(lengths))
    assert sum(lengths) <= batch["tokens"].numel() < 1.2 * sum(lengths)


def test_only_real_tokens_are_counted() -> None:
    made = random_sequences([10, 40, 64])
    one = task(params(**TINY_FULL))
    for multiple in (0, 2):
        batch = Frame(length=64, predictions=5, pack_multiple=multiple).lay(made)
        assert one.count(batch) == {"samples": 3, "tokens": 114}


@pytest.mark.parametrize(
    ("length", "predictions", "said"),
    [(32, 5, "a sequence of 40, sequence_length is 32"), (64, 1, "max_predictions is 1")],
)
def test_sequences_beyond_the_frame_are_refused(length: int, predictions: int, said: str) -> None:
    with pytest.raises(RunProblem, match=said):
        Frame(length=length, predictions=predictions, pack_multiple=0).lay(random_sequences([40] * 20))


def test_random_rows_are_full_and_never_the_same() -> None:
    batches = task(params(**TINY_FULL)).synthetic_batches()
    first, second = next(batches), next(batches)
    assert first["tokens"].shape == (4, 64)
    assert int(first["tokens"].max()) < 200
    assert not torch.equal(first["tokens"], second["tokens"])
    assert task(params(**TINY_FULL)).count(first) == {"samples": 4, "tokens": 256}
    assert len(set(first["masked_places"].flatten().tolist())) == 40
    other = next(task(params(**{**TINY_FULL, "global_batch_size": 8}), rank=1, world=2).synthetic_batches())
    assert not torch.equal(first["tokens"], other["tokens"])


@settings(deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_shuffling_deals_the_same_words_to_the_same_places(seed: int) -> None:
    batch = Frame(length=64, predictions=5, pack_multiple=0).lay(random_sequences([30, 40, 50, 64]))
    mixed = CASE.data.shuffle_labels(batch, torch.Generator().manual_seed(seed))
    assert torch.equal(mixed["tokens"], batch["tokens"])
    assert torch.equal(mixed["masked_ids"] > 0, batch["masked_ids"] > 0)
    assert sorted(mixed["masked_ids"].flatten().tolist()) == sorted(batch["masked_ids"].flatten().tolist())
    assert sorted(mixed["next_sentence"].tolist()) == sorted(batch["next_sentence"].tolist())
