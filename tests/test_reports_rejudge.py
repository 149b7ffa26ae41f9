"""`python -m reports rejudge`: a verdict can be made again from the folder, and an edited folder turns it red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.json_report import read_session, write_result
from reports.rejudge import differences
from reports.reporter import Reporter
from suite.outcome import Outcome
from suite.result import MetricResult, Result
from suite.verdict import judge_folder
from tests.reports_toy import toy_plan, toy_result
from tests.run_folders import tiny_plan, write_plan_folder


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session with one plan of two ranks, judged from a synthetic run folder."""
    folder = tmp_path / "session"
    plan = tiny_plan()
    write_plan_folder(folder / plan.id, plan)
    reporter = Reporter(folder, "main")
    reporter.announce({"kind": "session", "id": "s", "started": "2026-01-31T12:00:00Z"})
    reporter.announce({"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")})
    result = judge_folder(folder / plan.id)
    assert result.outcome.status == "passed", result.outcome
    told = {"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result.model_dump(mode="json")}
    reporter.announce(told)
    return folder


def plan_folder(session: Path) -> Path:
    """The only plan's."""
    return next(session.glob("*/plan.json")).parent


@pytest.mark.parametrize("which", ["session", "plan", "run"])
def test_an_untouched_folder_gives_the_same_verdict(
    session: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    plan = plan_folder(session)
    before = {path: path.read_bytes() for path in session.rglob("*") if path.is_file()}
    assert main(["rejudge", str({"session": session, "plan": plan, "run": plan / "r1"}[which])]) == 0
    out = capsys.readouterr().out
    assert "the same as the stored result.json" in out and "1 passed" in out
    assert {path: path.read_bytes() for path in session.rglob("*") if path.is_file()} == before


def test_missing_events_turn_it_red(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan_folder(session) / "r1" / "events" / "rank1.jsonl").unlink()
    assert main(["rejudge", str(session)]) == 1
    out = capsys.readouterr().out
    assert "outcome: stored passed; judged again " in out
    assert "1 passed" not in out


def test_an_edited_number_turns_it_red(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plan_folder(session) / "r1" / "events" / "rank0.jsonl"
    lines = path.read_text().splitlines()
    index = next(n for n, line in enumerate(lines) if '"eval_result"' in line)
    event = json.loads(lines[index])
    event["metrics"]["accuracy"] = 0.31
    lines[index] = json.dumps(event)
    path.write_text("\n".join(lines) + "\n")
    assert main(["rejudge", str(session)]) == 1
    assert "rank0.jsonl: changed since the verdict" in capsys.readouterr().out


def test_write_keeps_the_new_verdict_everywhere(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_folder(session)
    (plan / "r1" / "events" / "rank1.jsonl").unlink()
    assert main(["rejudge", str(plan), "--write"]) == 1
    assert read_session(session).results[0].outcome.status in ("failed", "error")
    capsys.readouterr()
    assert main(["rejudge", str(plan)]) == 1
    assert "the same as the stored result.json" in capsys.readouterr().out


def test_a_lost_verdict_can_be_made_again(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_folder(session)
    (plan / "result.json").write_text('{"half": ')
    assert main(["rejudge", str(plan)]) == 4
    assert "result.json: not JSON" in capsys.readouterr().err
    assert main(["rejudge", str(plan), "--write"]) == 0
    assert main(["rejudge", str(plan)]) == 0


def test_a_result_of_a_later_version_is_never_overwritten(session: Path) -> None:
    path = plan_folder(session) / "result.json"
    path.write_text('{"schema_version": 2}')
    assert main(["rejudge", str(session), "--write"]) == 4
    assert path.read_text() == '{"schema_version": 2}'


def test_differences_name_what_differs() -> None:
    stored = toy_result(toy_plan("toy"))
    failed = toy_result(toy_plan("toy"), Outcome(status="failed", category="quality", reason="0.5 < 0.7"))
    metrics = {**failed.metrics, "mfu": MetricResult(value=0.5, unit="fraction", values=(0.5,))}
    again = failed.model_copy(update={"metrics": metrics, "artifacts": (), "params": {"lr": 0.2}})
    assert list(differences(stored, stored)) == []
    found = list(differences(stored, again))
    assert found[0] == "outcome: stored passed; judged again failed: quality: 0.5 < 0.7"
    assert "check quality: stored pass (0.81 >= 0.7); judged again fail (0.5 >= 0.7)" in found
    assert "metric mfu: stored 0.347 fraction; judged again 0.5 fraction" in found
    assert "file r1/run.json: gone since the verdict" in found
    assert "params differs" in found


def test_a_base_s_run_leads_to_the_plan_that_it_serves(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_folder(session)
    (plan / "base" / "r1").mkdir(parents=True)
    (plan / "base" / "plan.json").write_text("{}")
    assert main(["show", str(plan / "base" / "r1")]) == 0
    assert plan.name in capsys.readouterr().out


def test_result_json_is_read_back_as_it_was_written(session: Path, tmp_path: Path) -> None:
    stored = Result.read(plan_folder(session) / "result.json")
    write_result(stored, tmp_path / "again")
    assert (tmp_path / "again" / "result.json").read_bytes() == (plan_folder(session) / "result.json").read_bytes()
