"""`python -m reports`: what it prints, its exit codes, and one clean sentence for whatever is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest

from reports.__main__ import main
from reports.json_report import SessionFacts, SessionReport, write_result, write_session
from reports.lost import lost_result
from reports.reporter import Reporter
from reports.schema import FOLDER, schemas
from suite.outcome import Outcome
from suite.result import Result
from tests.reports_toy import toy_plan, toy_result

PLAN = toy_plan("toy")
MISSED = Outcome(status="failed", category="quality", reason="0.5 < 0.7")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session with one plan that passed and one that missed its quality."""
    folder = tmp_path / "session"
    folder.mkdir()
    reporter = Reporter(folder, "main")
    reporter.announce({"kind": "session", "id": "s", "started": "2026-01-31T12:00:00Z", "exit_status": 1})
    for name, outcome in (("one", None), ("two", MISSED)):
        plan = toy_plan(name)
        reporter.announce({"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")})
        (folder / plan.id).mkdir(exist_ok=True)
        plan.write(folder / plan.id / "plan.json")
        result = toy_result(plan, outcome).model_dump(mode="json")
        reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result})
    return folder


def test_show_prints_the_table_of_a_session_a_plan_or_a_run(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = session / "two-pytorch-cpu-host-mini-1x1" / "r1"
    run.mkdir()
    for path in (session, session / "session.json"):
        assert main(["show", str(path)]) == 0
        out = capsys.readouterr().out
        assert "one-pytorch-cpu-host-mini-1x1" in out and "1 failed, 1 passed" in out
        assert "0.5 >= 0.7 MISS" in out
    for path in (run, run.parent):
        assert main(["show", str(path)]) == 0
        assert "1 failed; reports:" in capsys.readouterr().out


def test_junit_is_made_from_session_json_alone(session: Path, tmp_path: Path) -> None:
    whole = (session / "junit.xml").read_bytes()
    (session / "junit.xml").unlink()
    assert main(["junit", str(session)]) == 0
    assert (session / "junit.xml").read_bytes() == whole
    assert main(["junit", str(session), "--output", str(tmp_path / "trainmark.xml")]) == 0
    assert (tmp_path / "trainmark.xml").read_bytes() == whole


def test_the_schemas_in_the_repository_are_what_the_code_says(tmp_path: Path) -> None:
    assert main(["schema", "--output", str(tmp_path)]) == 0
    for name in schemas():
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), "run `python -m reports schema`"


def test_real_files_satisfy_the_schemas(session: Path) -> None:
    made = schemas()
    lost = lost_result(PLAN, Outcome(status="not_started", category="budget", reason="no time"))
    files = [session / "session.json", *session.glob("*/result.json")]
    documents = [(made[f"{path.stem}.schema.json"], json.loads(path.read_text())) for path in files]
    documents.append((made["result.schema.json"], lost.model_dump(mode="json")))
    for line in (session / "journal-main.jsonl").read_text().splitlines():
        documents.append((made["record.schema.json"], json.loads(line)["record"]))
    assert len(documents) > 7
    for schema, document in documents:
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**lost.model_dump(mode="json"), "weather": 1}, made["result.schema.json"])


def broken(folder: Path, name: str, text: str | bytes) -> Path:
    """`folder` with `text` in the file `name`."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize(
    ("command", "name", "text", "sentence"),
    [
        (["show"], "", "", "no such folder"),
        (["show"], "other.txt", "", "neither a session, a plan nor a run folder"),
        (["show"], "session.json", "{", "session.json: not JSON"),
        (["show"], "session.json", "[]", "session.json: not a SessionReport"),
        (["show"], "session.json", b"\xff\xfe", "session.json: not JSON"),
        (["show"], "session.json", '{"schema_version": 2}', "schema_version 2 is newer than 1"),
        (["show"], "session.json", '{"schema_version": 1}', "session: Field required"),
        (["show"], "session.json", "[" * 99999, "not JSON"),
        (
            ["show"],
            "session.json",
            r'{"schema_version": 1, "x": ["a \ud800"]}',
            "holds half a character, as \\ud800 is",
        ),
        (["html"], "session.json", r'{"schema_version": 1, "\udfff": 1}', "holds half a character"),
        (["show"], "session.json", r'{"schema_version": 1, "x": "\ud83d\ude00"}', "session: Field required"),
        (["show"], "journal-main.jsonl", "", "make it with `python -m reports rebuild"),
        (["show"], "plan.json", "{}", "result.json: cannot be read"),
        (["junit"], "other.txt", "", "no session folder"),
        (["junit"], "journal-main.jsonl", "", "session.json: cannot be read"),
        (["rebuild"], "other.txt", "", "no session folder"),
        (["rebuild"], "session.json", "{}", "no journal is left"),
        (["rejudge"], "", "", "no such folder"),
        (["rejudge"], "journal-main.jsonl", "", "no plan of this session has started"),
    ],
)
def test_broken_input_is_one_sentence_and_exit_4(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: Sequence[str],
    name: str,
    text: str | bytes,
    sentence: str,
) -> None:
    folder = broken(tmp_path / "it", name, text) if name else tmp_path / "it"
    assert main([*command, str(folder)]) == 4
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and sentence in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err


@pytest.mark.parametrize("argv", [[], ["weather"], ["show", "--weather"], ["rejudge"]], ids=str)
def test_wrong_usage_is_exit_4(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 4
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("command", ["rejudge", "bundle", "gate"])
def test_a_baseline_that_is_not_there_is_exit_4(
    command: str, session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(session), "--baseline", str(tmp_path / "nowhere")]) == 4
    assert "nowhere: no such file or folder" in capsys.readouterr().err


def test_an_unwritable_place_is_one_sentence(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["junit", str(session), "--output", str(session / "nowhere" / "junit.xml")]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_rebuild_tells_of_a_result_that_cannot_be_read(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken(session / "one-pytorch-cpu-host-mini-1x1", "result.json", '{"schema_version": 1,')
    assert main(["rebuild", str(session)]) == 4
    captured = capsys.readouterr()
    assert "report problem: " in captured.err and "result.json: not JSON" in captured.err
    assert "2 error" not in captured.out and "1 failed, 1 error" in captured.out


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    results: tuple[Result, ...] = (toy_result(PLAN),)
    report = SessionReport(session=SessionFacts(id="s"), selected=(PLAN.id,), results=results)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in (tmp_path / "a", tmp_path / "b"):
        write_session(report, folder)
        write_result(results[0], folder)
    for name in ("session.json", "result.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
