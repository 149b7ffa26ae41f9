"""Files that a later version wrote: every reader says so and leaves them alone; broken ones stop nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.base_reuse import finished_base
from fixtures.requality import main as requality
from fixtures.resume import interrupted
from reports.__main__ import main
from reports.json_report import read_session
from suite.baseline import check_named
from suite.errors import UsageProblem
from suite.plan import Plan
from suite.verdict import judge_folder
from tests.reports2_toy import real_session, session_with
from tests.reports_toy import toy_result
from tests.run_folders import tiny_plan

NEWER = "schema_version 2 is newer than 1, the newest that this version reads; upgrade, or use the version of Trainmark"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A judged session with a journal."""
    folder, _ = real_session(tmp_path / "s")
    (folder / "journal-main.jsonl").write_text("")
    return folder


def plan_of(session: Path) -> Path:
    """The folder of its plan."""
    (path,) = session.glob("*/plan.json")
    return path.parent


def of_later(path: Path) -> bytes:
    """The file as a later version would write it: with a key that nobody knows here."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2, "weather": "fine"}))
    return path.read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        *("show", "junit", "rebuild", "rejudge", "rejudge --write", "html --no-plots", "gate", "bundle", "table"),
        *("compare A", "versus A", "equivalence A", "export csv", "export github", "baseline propose"),
    ],
)
def test_every_reader_of_a_session_says_that_it_is_newer(
    session: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other, _ = real_session(tmp_path / "other")
    before = of_later(session / "session.json")
    if command.startswith("rejudge"):
        plan_of(session).joinpath("plan.json").unlink()  # nor has it a plan where this version looks for one
    argv = [str(other) if word == "A" else word for word in command.split()]
    assert main([*argv, str(session)]) == 4
    assert f"{session / 'session.json'}: {NEWER}" in capsys.readouterr().err
    assert (session / "session.json").read_bytes() == before


@pytest.mark.parametrize("name", ["plan.json", "result.json"])
@pytest.mark.parametrize("write", [[], ["--write"]], ids=["looking", "writing"])
def test_judging_again_says_that_a_plan_or_its_result_is_newer(
    session: Path, name: str, write: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = of_later(plan_of(session) / name)
    assert main(["rejudge", *write, str(session)]) == 4
    captured = capsys.readouterr().err
    assert f"{name}: {NEWER}" in captured and "Traceback" not in captured
    assert (plan_of(session) / name).read_bytes() == before


def test_readers_of_a_plan_say_that_it_is_newer(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plan_of(session)
    of_later(folder / "plan.json")
    for read in (judge_folder, lambda path: interrupted(path / "r1"), lambda path: Plan.read(path / "plan.json")):
        with pytest.raises(UsageProblem, match="newer than 1"):
            read(folder)
    assert main(["equivalence", str(session), str(session)]) == 4
    assert requality([str(folder), "--vendor", "cpu"]) == 4
    assert capsys.readouterr().err.count("newer than 1") == 2


def test_a_baseline_that_is_named_outright_is_told_to_be_newer(session: Path) -> None:
    of_later(plan_of(session) / "result.json")
    with pytest.raises(UsageProblem, match="newer than 1"):
        check_named(plan_of(session) / "result.json")


def test_a_base_of_a_later_version_is_not_taken_for_ours(session: Path, tmp_path: Path) -> None:
    folder = plan_of(session)
    plan = Plan.read(folder / "plan.json")
    plan = plan.model_copy(update={"speedup_metric": "time_to_train_s"})
    assert finished_base(plan, tmp_path / "empty", [session]) == folder
    of_later(folder / "result.json")
    assert finished_base(plan, tmp_path / "empty", [session]) is None


def test_a_broken_result_is_told_by_the_exit_status_and_the_rest_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [tiny_plan(id=f"{name}-pytorch-cpu-host-mini-1x1") for name in ("one", "two")]
    folder = session_with(tmp_path, [toy_result(plan) for plan in plans])
    (folder / "journal-main.jsonl").write_text("")
    for plan in plans:
        (folder / plan.id).mkdir(exist_ok=True)
        plan.write(folder / plan.id / "plan.json")
    (folder / plans[0].id / "result.json").write_text("{")
    (folder / plans[1].id / "result.json").write_text(toy_result(plans[1]).model_dump_json())
    assert main(["rebuild", "--no-plots", str(folder)]) == 4
    assert "report problem: " in capsys.readouterr().err
    found = {result.id.partition("-")[0]: result.outcome.status for result in read_session(folder).results}
    assert found == {"one": "error", "two": "passed"}
    assert (folder / "report" / "index.html").is_file()
    (folder / plans[0].id / "result.json").write_text(toy_result(plans[0]).model_dump_json())
    assert main(["rebuild", "--no-plots", str(folder)]) == 0
