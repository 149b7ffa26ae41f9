"""The text of a verdict: every check, the reason, the log, and what to do next; nothing that steers a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.failure_text import failure_text, number, table
from suite.log_tail import escaped, tail
from suite.verdict import judge_folder
from tests.run_folders import tiny_plan, with_base, write_plan_folder


def test_table_of_a_missed_target(tmp_path: Path) -> None:
    result = judge_folder(write_plan_folder(tmp_path / "plan", tiny_plan(), runs=[{"quality": (0.3, 0.6, 0.65)}]))
    lines = table(result).splitlines()
    assert lines[0] == "toy-pytorch-cpu-host-mini-1x2 missed 2 of 5 targets, 1 is inconclusive (?)"
    assert lines[1].split() == ["MISS", "quality", "0.65", "want", ">=", "0.7", "(the", "case)"]
    assert lines[2].split()[:6] == ["MISS", "time_to_train", "-", "want", "<=", "600"]
    assert [line.split()[0] for line in lines[1:]] == ["MISS", "MISS", "?", "ok", "ok"]
    # Columns stand under each other.
    assert len({line.index("want") for line in lines[1:] if "want" in line}) == 1


def test_table_of_a_pass_and_of_an_open_check(tmp_path: Path) -> None:
    good = judge_folder(write_plan_folder(tmp_path / "a", tiny_plan()))
    assert table(good).splitlines()[0] == "toy-pytorch-cpu-host-mini-1x2 passed: 1 of 5 targets is inconclusive (?)"
    open_ = judge_folder(write_plan_folder(tmp_path / "b", with_base(tiny_plan())))
    head = "toy-pytorch-cpu-host-mini-1x2 inconclusive: 2 of 6 targets are inconclusive (?)"
    assert table(open_).splitlines()[0] == head
    assert "no_baseline: the base toy-pytorch-cpu-host-mini-throughput-1x1 was not run" in table(open_)


def test_the_head_counts_what_the_rows_show(tmp_path: Path) -> None:
    """A run that is lost shows nothing but question marks, and its first line says so."""
    lost = judge_folder(write_plan_folder(tmp_path / "plan", tiny_plan(), runs=[{"faults": ["crash"]}]))
    head, *rows = table(lost).splitlines()
    assert head == "toy-pytorch-cpu-host-mini-1x2 error: 5 of 5 targets are inconclusive (?)"
    assert [row.split()[0] for row in rows] == ["?"] * 5


def test_failure_text_ends_in_the_next_action(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", tiny_plan(), runs=[{"faults": ["crash"]}])
    result = judge_folder(folder)
    lines = failure_text(result, folder, 'pytest suite -k "toy and 1x2" --vendor cpu').splitlines()
    assert "error: crash: rank 1 died" in lines
    assert "last lines of rank 1:" in lines
    assert "  | boom \\x1b[31m" in lines
    assert lines[-3:] == [
        f"log: {folder / 'r1' / 'logs' / 'rank1.log'}",
        f"run: {folder}",
        'rerun: pytest suite -k "toy and 1x2" --vendor cpu',
    ]


def test_log_of_the_rank_that_failed_at_most_twenty_lines(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", tiny_plan(), runs=[{"faults": ["nan_loss"]}])
    text = failure_text(judge_folder(folder), folder, "again")
    assert "line 39 of rank 1" in text and "line 20 of rank 1" in text
    assert "line 19 of rank 1" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("plain ünï 漢", "plain ünï 漢"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\x00b\x7f\x9b", "a\\x00b\\x7f\\x9b"),
        ("a\tb", "a\tb"),
        ("\u202eabc", "\\u202eabc"),
    ],
    ids=["plain", "title", "controls", "tab", "right to left"],
)
def test_escaped(raw: str, safe: str) -> None:
    assert escaped(raw) == safe


def test_tail_of_a_long_log_is_cheap_and_short(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_text("x" * 200_000 + "\n" + "progress 1 %\rprogress 100 %\n" * 3)
    lines = tail(path)
    assert lines[-3:] == ("progress 100 %",) * 3
    assert all(len(line) <= 500 for line in lines)
    assert tail(tmp_path / "absent") == ()


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "s", "-"),
        (0.0, "s", "0 s"),
        (0.79, "fraction", "0.79"),
        (12345.6, "image/s", "12,346 image/s"),
        ("nan", "", "nan"),
    ],
)
def test_number(value: float | str | None, unit: str, shown: str) -> None:
    assert number(value, unit) == shown
