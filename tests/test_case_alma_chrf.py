"""ALMA's measure: chrF by hand, at its ends, and in parts."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.case_alma import CASE


def test_chrf_by_hand() -> None:
    """`abcd` for `abce`: of n-grams 4, 3, 2, 1 on both sides 3, 2, 1, 0 agree; longer ones there are none."""
    counted = CASE.chrf.counts("ab cd", "abce ")
    assert counted == ((4, 4, 3), (3, 3, 2), (2, 2, 1), (1, 1, 0), (0, 0, 0), (0, 0, 0))
    mean = (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4
    assert CASE.chrf.score(counted) == pytest.approx(100 * mean)
    longer = CASE.chrf.counts("abab", "ab")  # precision 2/4 and 1/3, recall 1 and 1
    assert longer[:3] == ((4, 2, 2), (3, 1, 1), (0, 0, 0))
    precision = (2 / 4 + 1 / 3) / 2
    assert CASE.chrf.score(longer) == pytest.approx(100 * 5 * precision / (4 * precision + 1))


def test_chrf_at_its_ends() -> None:
    texts = ["24. Mai 2003", "vor 3 Wochen", "5 km"]
    assert CASE.chrf.corpus(texts, texts) == 100
    assert CASE.chrf.corpus(["xyz"], ["abc"]) == 0
    assert CASE.chrf.corpus([""], ["abc"]) == 0
    assert CASE.chrf.corpus([], []) == 0
    assert 0 < CASE.chrf.corpus(["vor 2 Wochen"], ["vor 3 Wochen"]) < 100


def test_chrf_of_parts_adds_up_to_that_of_the_whole() -> None:
    ours, theirs = ["abc def", "ab", "qqq", ""], ["abc dee", "abab", "", "x"]
    parts = [CASE.chrf.add(map(CASE.chrf.counts, ours[part], theirs[part])) for part in (slice(1), slice(1, 4))]
    assert CASE.chrf.score(CASE.chrf.add(parts)) == CASE.chrf.corpus(ours, theirs)
