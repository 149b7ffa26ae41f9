"""The gate: every exit code, what it is held against, and a comment that nothing can break out of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.baseline_store import baseline_from, keep, write
from reports.gate import gate
from reports.gate_comment import comment
from reports.json_report import read_session
from suite.baseline_file import read_baseline
from suite.figures import figures_of
from suite.outcome import PASSED, Outcome
from suite.result import Result
from tests.reports2_toy import noisy, real_session, result_with, session_with

MISSED = Outcome(status="failed", category="quality", reason="0.5 < 0.7")
NOISE = Outcome(status="inconclusive", category="noise", reason="too wide")
LOST = Outcome(status="error", category="lost_node", reason="node2 is gone")
CRASH = Outcome(status="error", category="crash", reason="rank 1 died")
BUSY = Outcome(status="not_started", category="unavailable", reason="8 wanted")


def approved(folder: Path, result: Result, **over: str) -> Path:
    """An approved baseline of `result`."""
    path = keep(baseline_from(figures_of(result), source="s0", today="2026-01-01"), folder)
    standing = {"state": "approved", "approved": "2026-01-02", "approved_by": "a reviewer", **over}
    write(read_baseline(path).model_copy(update=standing), path)
    return path


@pytest.mark.parametrize(
    ("outcomes", "over", "code"),
    [
        ([PASSED], {}, 0),
        ([PASSED, NOISE, BUSY], {}, 0),
        ([PASSED, MISSED], {}, 1),
        ([PASSED, CRASH], {}, 1),
        ([MISSED, LOST], {}, 1),
        ([NOISE], {}, 2),
        ([NOISE, BUSY], {}, 2),
        ([PASSED, LOST], {}, 3),
        ([PASSED], {"exit_status": None}, 3),
        ([PASSED], {"exit_status": 2}, 3),
        ([BUSY], {"exit_status": 5}, 5),
        ([], {"exit_status": 5}, 5),
    ],
)
def test_exit_codes(
    tmp_path: Path,
    outcomes: list[Outcome],
    over: dict[str, int | None],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [result_with(f"plan{index}", outcome=outcome) for index, outcome in enumerate(outcomes)]
    folder = session_with(tmp_path / "s", results, **over)
    (tmp_path / "none").mkdir()
    assert (
        main(["gate", str(folder), "--baseline", str(tmp_path / "none"), "--comment", str(tmp_path / "c.md")]) == code
    )
    assert f"exit code {code}" in capsys.readouterr().out
    text = (tmp_path / "c.md").read_text()
    assert f"exit code {code}" in text and text.count("### ") == 1


def test_wrong_input_is_exit_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = session_with(tmp_path / "s", [result_with()])
    assert main(["gate", str(tmp_path / "absent")]) == 4
    assert main(["gate", str(folder), "--baseline", str(tmp_path / "absent")]) == 4
    approved(tmp_path / "b", result_with()).write_text('state = "approved"\n')
    assert main(["gate", str(folder), "--baseline", str(tmp_path / "b")]) == 4, "a broken baseline opens no gate"
    assert "is missing" in capsys.readouterr().err


def test_open_division_is_shown_and_neither_passes_nor_fails(tmp_path: Path) -> None:
    for outcome in (PASSED, MISSED):
        folder = session_with(tmp_path / outcome.status, [result_with(outcome=outcome, plan={"division": "open"})])
        decided = gate(read_session(folder), [])
        assert (decided.code, decided.plans[0].standing) == (2, "shown")


def test_a_regression_against_the_approved_baseline_fails(tmp_path: Path) -> None:
    old, new = (result_with(throughput=noisy(speed, 6, 0.004, int(speed))) for speed in (100, 97))
    approved(tmp_path / "b", old)
    decided = gate(read_session(session_with(tmp_path / "s", [new])), [tmp_path / "b"])
    assert decided.code == 1 and "throughput_train: worse by 2.8 %, 1 % accepted" in decided.plans[0].reason
    text = comment(decided)
    assert "baseline of 2026-01-02" in text and "**failed**" in text and "regression" in text


def test_noise_is_no_regression_and_twenty_decisions_are_one(tmp_path: Path) -> None:
    old, new = (result_with(throughput=noisy(speed, 6, 0.005, int(speed * 10))) for speed in (100, 99.7))
    approved(tmp_path / "b", old)
    report = read_session(session_with(tmp_path / "s", [new]))
    texts = {comment(gate(report, [tmp_path / "b"])) for _ in range(20)}
    assert len(texts) == 1 and gate(report, [tmp_path / "b"]).code == 0


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        ({"state": "proposed"}, "its baseline is proposed"),
        ({"state": "quarantined", "reason": "a fan"}, "its baseline is quarantined: a fan"),
        ({"expires": "2026-01-31"}, "its baseline is expired"),
        ({"fingerprint": "0" * 64, "environment": {"driver_version": "540"}}, "driver_version differs: 540 and 550"),
    ],
)
def test_a_baseline_that_does_not_hold_here_is_said_and_not_used(
    tmp_path: Path, standing: dict[str, str], why: str
) -> None:
    approved(tmp_path / "b", result_with(throughput=noisy(200, 6, 0.002)), **standing)
    slow = session_with(tmp_path / "s", [result_with(throughput=noisy(100, 6, 0.002))])
    decided = gate(read_session(slow), [tmp_path / "b"])
    assert decided.code == 0 and why in decided.plans[0].baseline
    assert why in comment(decided)


def test_a_required_check_and_an_expected_plan_that_are_missing_close_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = session_with(tmp_path / "s", [result_with()])
    assert main(["gate", str(folder), "--require", "quality"]) == 0
    assert main(["gate", str(folder), "--require", "requality"]) == 2
    assert "requality" in capsys.readouterr().out
    assert main(["gate", str(folder), "--expect", "toy-pytorch-cpu-host-mini-1x1"]) == 0
    assert main(["gate", str(folder), "--expect", "toy-pytorch-cpu-host-mini-1x2"]) == 2
    assert "expected here and not in the session" in capsys.readouterr().out


def test_nothing_of_a_log_leaves_its_place_in_the_comment(tmp_path: Path) -> None:
    evil = "@admins #1 | `` ` </details><img src=x onerror=alert(1)> [x](http://evil) \n# head\n\x1b[31m \u202e"
    results = [result_with(outcome=Outcome(status="error", category="crash", reason=evil))]
    text = comment(gate(read_session(session_with(tmp_path / "s", results, command=evil)), []))
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    for word in ("@admins", "<img", "evil", "#1", "\x1b"):
        assert word not in outside
    assert "\n# head" not in text and "@admins" in text


def test_the_comment_keeps_under_the_limit_and_counts_what_it_cuts(tmp_path: Path) -> None:
    crash = Outcome(status="error", category="crash", reason="ä" * 2000)
    results = [result_with(f"p{n:03}", outcome=crash) for n in range(400)]
    text = comment(gate(read_session(session_with(tmp_path / "s", results)), []))
    assert len(text.encode()) < 65_536 and re.search(r"and \d+ more lines", text)


def test_the_smallest_change_to_be_seen_stands_beside_each_threshold(tmp_path: Path) -> None:
    decided = gate(read_session(session_with(tmp_path / "s", [result_with(time=noisy(500, 6, 0.01))])), [])
    told = " ".join(decided.plans[0].detectable)
    assert re.search(r"time_to_train <= 600: changes from [\d.]+ % on can be seen with 6 runs", told)


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


@pytest.mark.parametrize(
    ("file", "change", "word"),
    [
        ("r1/events/rank0.jsonl", append, "changed"),
        ("r1/harness.jsonl", append, "changed"),
        ("plan.json", append, "changed"),
        ("r1/events/rank0.jsonl", Path.unlink, "gone"),
        ("r1/harness.jsonl", Path.unlink, "gone"),
        ("r1/harness.jsonl", replace_by_folder, "gone"),
        ("r1/harness.jsonl", replace_by_link, "gone"),
        ("r1/run.json", Path.unlink, "gone"),
    ],
)
def test_evidence_that_is_another_than_was_judged_closes_the_gate(
    tmp_path: Path, file: str, change: Callable[[Path], None], word: str
) -> None:
    folder, plan = real_session(tmp_path / "s")
    assert gate(read_session(folder), [], folder=folder).code == 0
    change(folder / plan.id / file)
    decided = gate(read_session(folder), [], folder=folder)
    assert (decided.code, decided.plans[0].standing) == (1, "failed")
    assert decided.plans[0].reason.startswith(f"{plan.id}/{file}: {word} since the verdict")


def say_failed(path: Path) -> None:
    stored = json.loads(path.read_text())
    stored["outcome"] |= {"status": "failed", "category": "quality", "reason": "0.1 is not >= 0.9"}
    path.write_text(json.dumps(stored))


def say_faster(path: Path) -> None:
    stored = json.loads(path.read_text())
    stored["metrics"]["throughput_train"]["value"] *= 2
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (say_failed, "says failed, session.json passed"),
        (say_faster, "another verdict than that of session.json"),
        (Path.unlink, "gone since the verdict"),
        (append, ""),
        (lambda path: path.write_text("{"), "unreadable"),
    ],
    ids=["failed", "faster", "gone", "blank", "torn"],
)
def test_a_session_that_says_otherwise_than_its_plans_closes_the_gate(
    tmp_path: Path, change: Callable[[Path], None], sentence: str
) -> None:
    folder, plan = real_session(tmp_path / "s")
    assert gate(read_session(folder), [], folder=folder).code == 0
    change(folder / plan.id / "result.json")
    decided = gate(read_session(folder), [], folder=folder)
    told = f"{plan.id}/result.json: {sentence}, see `python -m reports rejudge`" if sentence else ""
    assert (decided.code, decided.plans[0].reason) == (1 if sentence else 0, told)


def test_runs_under_another_name_and_pruned_logs(tmp_path: Path) -> None:
    """Whoever renames a run hides it; logs and checkpoints are no evidence of a verdict."""
    folder, plan = real_session(tmp_path / "s")
    for path in (folder / plan.id / "r1/logs").iterdir():
        path.unlink()
    assert gate(read_session(folder), [], folder=folder).code == 0
    (folder / plan.id / "r1").rename(folder / plan.id / "x1")
    assert gate(read_session(folder), [], folder=folder).code == 1


@pytest.mark.parametrize("id", ["../other", "/other", "a/b", "..", ""])
def test_an_id_that_is_no_folder_of_the_session_closes_the_gate(tmp_path: Path, id: str) -> None:
    folder = session_with(tmp_path / "s", [result_with()])
    report = read_session(folder)
    (result,) = report.results
    changed = report.model_copy(update={"results": (result.model_copy(update={"id": id}),), "selected": (id,)})
    decided = gate(changed, [], folder=folder)
    assert decided.code == 1 and "is no name of a folder" in decided.plans[0].reason
