"""The digest of what was asked: the same however it is shared out, and no digest where something cannot be read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.drivers.asked import Asked, together

QUESTIONS = st.lists(st.tuples(st.text(), st.integers(-(2**40), 2**40)), min_size=1, max_size=12)


def digest(questions: list[object]) -> str | None:
    asked = Asked()
    for question in questions:
        asked.note(question)
    return asked.told


@given(QUESTIONS, st.integers(1, 5), st.randoms())
def test_order_and_ranks_do_not_matter(questions: list[object], world: int, random: object) -> None:
    whole = digest(questions)
    mixed = list(questions)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert together(digest(mixed[rank::world]) for rank in range(world)) == whole
    assert together([digest([*questions, ("one more", 0)])]) != whole


@pytest.mark.parametrize(
    "unreadable", [object(), torch.zeros(2, dtype=torch.bfloat16), torch.ones(1, requires_grad=True)]
)
def test_what_cannot_be_read_leaves_no_digest_on_any_number_of_ranks(unreadable: object) -> None:
    questions = [("one", 1), ("two", unreadable), ("three", 3), ("four", 4)]
    for world in (1, 2, 4):
        assert together(digest(list(questions[rank::world])) for rank in range(world)) is None


def test_ranks_without_a_question_add_nothing() -> None:
    assert together([None, digest([("one", np.arange(3))]), None]) == digest([("one", np.arange(3))])
    assert together([None, None]) is None
