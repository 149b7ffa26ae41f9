"""The ledger: a partition of the run, in which evaluations, waits and stalls each have their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.ledger import Span, make_ledger, partition, unaccounted_over
from suite.measurement import LEDGER_PHASES
from suite.rank_stream import RankStream, read_stream
from suite.steady import Steady, find_steady
from tests.run_folders import read_lines, tiny_plan, write_lines, write_run


def ledger_of(folder: Path) -> tuple[dict[str, float], RankStream, Steady]:
    stream = read_stream(folder / "events" / "rank0.jsonl", 0)
    steady = find_steady(stream.step_s)
    return make_ledger(stream, steady, {"launch": 2.0, "teardown": 0.5}), stream, steady


def test_phases_add_up_to_the_wall(tmp_path: Path) -> None:
    ledger, stream, _ = ledger_of(write_run(tmp_path, tiny_plan()))
    phases = {name: ledger[name] for name in LEDGER_PHASES if name in ledger}
    assert sum(phases.values()) + ledger["unaccounted_s"] == pytest.approx(ledger["wall_s"])
    assert ledger["wall_s"] == pytest.approx(stream.span_s + 2.5)
    assert ledger["eval"] == pytest.approx(0.903)
    assert ledger["init"] == pytest.approx(0.51)
    assert ledger["data_wait"] == pytest.approx(1.2)
    assert ledger["checkpoint"] == pytest.approx(0.06)
    assert "queue" not in ledger
    assert unaccounted_over(ledger, stream.span_s) < 0


def test_first_step_and_other_slow_steps_are_compile_and_warm_up(tmp_path: Path) -> None:
    ledger, _, steady = ledger_of(write_run(tmp_path, tiny_plan(), faults=["slow_start"]))
    assert steady.first == 3
    assert ledger["compile"] == pytest.approx(5 - 0.01 - 0.1, abs=0.02)
    assert ledger["warmup"] == pytest.approx(0.1 + 2 * 4.99, abs=0.05)
    assert ledger["train"] == pytest.approx(117 * 0.09, abs=0.05)


def test_hidden_time_is_unaccounted(tmp_path: Path) -> None:
    ledger, stream, _ = ledger_of(write_run(tmp_path, tiny_plan(), faults=["hidden_time"]))
    assert ledger["unaccounted_s"] == pytest.approx(5.5, abs=0.1)
    assert unaccounted_over(ledger, stream.span_s) == pytest.approx(4.5, abs=0.1)


def test_missing_stop_of_an_evaluation_ends_at_the_next_window(tmp_path: Path) -> None:
    folder = write_run(tmp_path, tiny_plan())
    path = folder / "events" / "rank0.jsonl"
    write_lines(path, [line for line in read_lines(path) if line["event"] != "eval_stop"])
    ledger, _, _ = ledger_of(folder)
    assert ledger["eval"] == pytest.approx(0.903, abs=0.01)
    assert ledger["unaccounted_s"] < 0.01


def test_evaluation_inside_a_window_is_not_counted_as_training(tmp_path: Path) -> None:
    folder = write_run(tmp_path, tiny_plan())
    path = folder / "events" / "rank0.jsonl"
    lines = read_lines(path)
    at = next(i for i, line in enumerate(lines) if line["event"] == "steps" and line["first"] == 11)
    inside = [
        {"event": "eval_start", "t": lines[at]["t"] - 0.6, "step": 10},
        {"event": "eval_stop", "t": lines[at]["t"] - 0.1},
    ]
    write_lines(path, [*lines[:at], *inside, *lines[at:]])
    ledger, stream, _ = ledger_of(folder)
    assert ledger["eval"] == pytest.approx(0.903 + 0.5)
    assert ledger["train"] == pytest.approx(10.8 - 0.45, abs=0.01)
    assert ledger["wall_s"] == pytest.approx(stream.span_s + 2.5)


spans = st.builds(
    lambda start, length, precedence: Span(start, start + length, precedence, "train"),
    st.floats(0, 100), st.floats(0, 50), st.integers(0, 5),
)  # fmt: skip


@given(st.lists(spans, max_size=25))
def test_no_second_is_owned_twice(found: list[Span]) -> None:
    owned = partition(found, 10.0, 90.0)
    assert sum(owned) <= 80.0 + 1e-9
    for span, share in zip(found, owned):
        assert -1e-9 <= share <= max(min(span.stop, 90.0) - max(span.start, 10.0), 0.0) + 1e-9


@given(st.lists(spans, min_size=1, max_size=12))
def test_the_lowest_precedence_owns_all_of_its_span(found: list[Span]) -> None:
    top = Span(20.0, 40.0, -1, "eval")
    assert partition([*found, top], 0.0, 200.0)[-1] == pytest.approx(20.0)
