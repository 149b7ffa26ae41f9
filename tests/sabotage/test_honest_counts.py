"""An evaluation that a user has cut is no sabotage: the case's count is of the case as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planning_toys import make_suite, plan_one

CASE = Path("cases/toy/pytorch/case.toml")


@pytest.mark.parametrize(
    ("sets", "counted"), [((), 300.0), (("lr=3",), 300.0), (("hidden=64",), 300.0), (("hidden=32",), None)]
)
def test_the_count_holds_while_the_case_is_the_cases_own(
    tmp_path: Path, sets: tuple[str, ...], counted: float | None
) -> None:
    suite = make_suite(tmp_path)
    path = suite / CASE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[target]\n", "[target]\ncounted = 300\n", 1), encoding="utf-8")
    assert plan_one(suite, "1x8", sets=sets).quality.counted == counted
