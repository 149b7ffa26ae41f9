"""Journals: readable after any crash, merged over processes, and the story that they tell of each plan."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.facts import CI_NAMES, ci, git, versions
from reports.gather import gather
from reports.journal import JournalWriter, encode, plain, read_journals
from reports.json_report import write_result
from reports.records import KINDS, OutcomeRecord, PhaseRecord
from reports.reporter import Reporter
from suite.outcome import Outcome
from suite.plan import Plan
from tests.reports_toy import toy_plan, toy_result

PASSED = {"status": "passed"}


def tell(folder: Path, worker: str, *records: Mapping[str, object], t_wall: float | None = None) -> None:
    """Append `records` to the journal of `worker`, at `t_wall`."""
    writer = JournalWriter(folder, worker)
    for record in records:
        line = json.loads(encode(record, worker))
        if t_wall is not None:
            line["t_wall"] = t_wall
        writer.append(json.dumps(line).encode() + b"\n", durable=False)


def started(plan: Plan) -> dict[str, object]:
    return {"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")}


def settled(plan: Plan, status: str, category: str) -> dict[str, object]:
    return {"kind": "outcome", "id": plan.id, "outcome": {"status": status, "category": category, "reason": "so"}}


def selected(*plans: Plan) -> dict[str, object]:
    return {"kind": "selected", "plans": [plan.model_dump(mode="json") for plan in plans]}


def outcome_of(folder: Path) -> Outcome:
    """Of the only plan."""
    (result,) = gather(folder).report.results
    return result.outcome


def test_processes_are_merged_by_wall_time_and_each_keeps_its_order(tmp_path: Path) -> None:
    for worker, name, t_wall in (("gw0", "a", 10.0), ("gw1", "b", 11.0), ("gw0", "c", 12.0), ("gw0", "d", 5.0)):
        tell(tmp_path, worker, {"kind": "phase", "id": "x", "name": name}, t_wall=t_wall)
    names = [entry.record.name for entry in read_journals(tmp_path).entries if isinstance(entry.record, PhaseRecord)]
    assert names == ["a", "b", "c", "d"], "a clock set back does not turn a process's story round"


@given(cut=st.integers(0, 400))
def test_a_torn_last_line_is_no_problem(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    line = encode({"kind": "outcome", "id": "x", "outcome": PASSED}, "main")
    (folder / "journal-main.jsonl").write_bytes(line + line[: min(cut, len(line) - 1)])
    journal = read_journals(folder)
    assert journal.problems == ()
    # Cut just before the newline, the record is whole.
    assert len(journal.entries) == (2 if cut >= len(line) - 1 else 1)


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", "{}", '{"t_wall":1,"worker":"main","record":{"kind":"outcome"}}', '{"t_wall":"x","record":{}}',
        "\xff", "[" * 99999,
    ],
    ids=range(7),
)  # fmt: skip
def test_any_other_bad_line_is_passed_over_and_told(tmp_path: Path, bad: str) -> None:
    line = encode({"kind": "outcome", "id": "x", "outcome": PASSED}, "main")
    (tmp_path / "journal-main.jsonl").write_bytes(bad.encode("latin-1") + b"\n" + line)
    journal = read_journals(tmp_path)
    assert [type(entry.record) for entry in journal.entries] == [OutcomeRecord]
    (problem,) = journal.problems
    assert problem.startswith("journal-main.jsonl:1: not a record")


def test_a_kind_of_a_later_version_is_passed_over_in_silence(tmp_path: Path) -> None:
    tell(tmp_path, "main", {"kind": "weather", "sky": "blue"}, {"kind": "phase", "id": "x", "of_later": 1})
    journal = read_journals(tmp_path)
    assert (len(journal.entries), journal.problems) == (1, ())
    assert "weather" not in KINDS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(Path("p")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=10,
    )
)
def test_whatever_is_announced_becomes_one_line_of_strict_json(value: object) -> None:
    line = encode({"kind": "phase", "id": "x", "value": value}, "main")
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_numbers_that_are_not_finite_are_told_as_text() -> None:
    assert plain([math.nan, math.inf, -math.inf, 1.5]) == ["nan", "inf", "-inf", 1.5]
    assert plain("\ud800") == "\\ud800"


def test_a_plan_that_never_began_is_not_started(tmp_path: Path) -> None:
    tell(tmp_path, "main", selected(toy_plan("toy")))
    assert (outcome_of(tmp_path).status, outcome_of(tmp_path).category) == ("not_started", "interrupted")


def test_a_plan_that_was_interrupted_says_so(tmp_path: Path) -> None:
    plan = toy_plan("toy")
    tell(tmp_path, "main", selected(plan), started(plan), {"kind": "interrupt"})
    assert (outcome_of(tmp_path).status, outcome_of(tmp_path).category) == ("error", "interrupted")


def test_the_controller_does_not_overrule_the_worker_that_ran_the_plan(tmp_path: Path) -> None:
    plan = toy_plan("toy")
    tell(tmp_path, "gw0", started(plan), t_wall=1.0)
    died = {"kind": "worker", "worker": "gw0", "reason": "Not properly terminated (SIGKILL)"}
    tell(tmp_path, "main", died, started(plan), settled(plan, "not_started", "interrupted"), t_wall=2.0)
    outcome = outcome_of(tmp_path)
    assert (outcome.status, outcome.category) == ("error", "worker_lost")
    assert "SIGKILL" in outcome.reason


def test_the_last_attempt_decides_and_a_new_start_forgets_the_verdict(tmp_path: Path) -> None:
    plan = toy_plan("toy")
    reporter = Reporter(tmp_path, "main")
    reporter.announce(started(plan))
    failed = toy_result(plan, Outcome(status="failed", category="quality", reason="so"))
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": failed.model_dump(mode="json")})
    assert outcome_of(tmp_path).status == "failed"
    reporter.announce(started(plan))
    assert outcome_of(tmp_path).category == "worker_lost"
    passed = toy_result(plan)
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": passed.model_dump(mode="json")})
    assert outcome_of(tmp_path).status == "passed"
    assert reporter.problems == ()


def test_a_lost_plan_keeps_the_runs_that_ended(tmp_path: Path) -> None:
    plan = toy_plan("toy", seeds=(5, 6), repeat=2)
    lost = {"status": "error", "category": "lost_node", "reason": "gone"}
    attempts = [(1, 1, "r1", lost), (1, 2, "r1.2", PASSED), (1, 1, "base/r1", PASSED)]
    told = [
        {"kind": "attempt", "id": plan.id, "n": n, "attempt": attempt, "folder": folder, "outcome": outcome}
        for n, attempt, folder, outcome in attempts
    ]
    tell(tmp_path, "main", started(plan), *told)
    (result,) = gather(tmp_path).report.results
    (run,) = result.runs
    assert (run.n, run.seed, run.attempts, run.folder) == (1, 5, 2, "r1.2")


@pytest.mark.parametrize("broken", ["nan", "category", "nothing"])
def test_a_verdict_that_is_no_result_is_an_error_and_never_a_pass(tmp_path: Path, broken: str) -> None:
    plan = toy_plan("toy")
    result = toy_result(plan).model_dump(mode="json")
    if broken == "nan":
        result["metrics"]["mfu"]["value"] = math.nan
    elif broken == "category":
        result["outcome"] = {"status": "failed", "category": "weather"}
    else:
        result = {}
    reporter = Reporter(tmp_path, "main")
    reporter.announce(started(plan))
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result})
    assert (outcome_of(tmp_path).status, outcome_of(tmp_path).category) == ("error", "harness")
    assert not (tmp_path / plan.id / "result.json").exists()
    assert "not a Result" in reporter.problems[0]


def test_result_json_holds_what_was_announced(tmp_path: Path) -> None:
    plan = toy_plan("toy")
    result = toy_result(plan)
    told = {"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result.model_dump(mode="json")}
    Reporter(tmp_path, "gw0").announce(told)
    stored = json.loads((tmp_path / plan.id / "result.json").read_text(encoding="utf-8"))
    assert stored == result.model_dump(mode="json")
    assert not (tmp_path / "session.json").exists(), "a worker makes no file of the session"


def test_a_plan_whose_journal_lines_are_lost_speaks_through_its_folder(tmp_path: Path) -> None:
    plan = toy_plan("toy")
    (tmp_path / plan.id).mkdir()
    plan.write(tmp_path / plan.id / "plan.json")
    tell(tmp_path, "main", {"kind": "interrupt"})
    report = gather(tmp_path).report
    assert report.selected == (plan.id,)
    assert report.results[0].outcome.status == "not_started"


def test_a_session_that_was_moved_is_read_where_it_is(tmp_path: Path) -> None:
    plan, there, here = toy_plan("toy"), tmp_path / "there", tmp_path / "here"
    there.mkdir()
    reporter = Reporter(there, "main")
    reporter.announce({**started(plan), "folder": str(there / plan.id)})
    result = toy_result(plan, Outcome(status="failed", category="quality", reason="so")).model_dump(mode="json")
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": str(there / plan.id), "result": result})
    there.rename(here)
    passed = toy_result(plan)
    write_result(passed, here / plan.id)
    assert gather(here).report.results == (passed,), "result.json in the new place is what counts"


def test_only_listed_variables_reach_a_report() -> None:
    environment = {"BUILD_URL": "https://ci/1", "HF_TOKEN": "secret", "JOB_NAME": "", "PATH": "/bin"}
    assert ci(environment) == {"BUILD_URL": "https://ci/1"}
    assert not [name for name in CI_NAMES if "TOKEN" in name or "SECRET" in name or "PASSWORD" in name]


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    assert git(tmp_path) == {"commit": None, "dirty": None}
    assert versions()["python"]


def test_a_large_session_is_reported_at_its_end_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.reporter.LIVE_PLANS", 1)
    reporter = Reporter(tmp_path, "main")
    plans = [toy_plan("one"), toy_plan("two")]
    reporter.announce(selected(*plans))
    reporter.refresh()
    (tmp_path / "session.json").unlink()
    reporter.announce(started(plans[0]))
    reporter.announce(settled(plans[0], "not_started", "budget"))
    assert not (tmp_path / "session.json").exists()
    gathered = reporter.refresh()
    assert gathered is not None
    assert [result.outcome.category for result in gathered.report.results] == ["budget", "interrupted"]
    assert (tmp_path / "session.json").exists()
