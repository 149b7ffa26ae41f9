"""A session as its user sees it: whatever becomes of its processes, every selected plan is in the reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.reports_toy import (
    junit_shape,
    outcomes_of,
    run_reports,
    run_toy,
    session_of,
    toy_environment,
    write_project,
)

SCRIPT = {"one": "pass", "two": "miss", "three": "unavailable", "four": "pass"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "a project")


def test_a_session_leaves_all_its_files_and_prints_the_table(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    done = run_toy(project, session, SCRIPT, f"--junitxml={tmp_path}/pytest.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    report = session_of(session)
    assert report["schema_version"] == 1
    assert [result["id"] for result in report["results"]] == report["selected"]
    assert report["session"]["exit_status"] == 1
    assert report["session"]["finished"].endswith("Z")
    assert report["session"]["git"] == {"commit": "abc", "dirty": False}
    assert report["session"]["command"] == "pytest toy"
    assert outcomes_of(session) == {
        "one": "passed",
        "two": "failed: quality",
        "three": "not_started: unavailable",
        "four": "passed",
    }
    assert (session / "one-pytorch-cpu-host-mini-1x1" / "result.json").is_file()
    assert not (session / "three-pytorch-cpu-host-mini-1x1" / "result.json").exists()
    assert "2 passed" in done.stdout and "1 failed" in done.stdout and str(session) in done.stdout
    assert "two-pytorch-cpu-host-mini-1x1: failed: quality: 0.5 < 0.7" in done.stdout
    assert "34.7 %" in done.stdout
    # pytest's own report is written beside ours, and stays pytest's own.
    assert ElementTree.parse(tmp_path / "pytest.xml").getroot().find("testsuite") is not None


def test_workers_make_no_difference(project: Path, tmp_path: Path) -> None:
    run_toy(project, tmp_path / "alone", SCRIPT)
    done = run_toy(project, tmp_path / "workers", SCRIPT, "-n", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert junit_shape(tmp_path / "alone" / "junit.xml") == junit_shape(tmp_path / "workers" / "junit.xml")
    assert session_of(tmp_path / "alone")["results"] == session_of(tmp_path / "workers")["results"]
    assert len(list((tmp_path / "workers").glob("journal-gw*.jsonl"))) == 2


def test_a_killed_worker_loses_its_plan_and_nothing_else(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    script = {"one": "pass", "two": "die", "three": "pass", "four": "pass"}
    done = run_toy(project, session, script, "-n", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    expected = {"one": "passed", "two": "error: worker_lost", "three": "passed", "four": "passed"}
    assert outcomes_of(session) == expected
    reason = session_of(session)["results"][1]["outcome"]["reason"]
    assert "SIGKILL" in reason and "gw" in reason
    lost = next(shape for shape in junit_shape(session / "junit.xml") if shape[0].startswith("two"))
    whole = next(shape for shape in junit_shape(session / "junit.xml") if shape[0].startswith("one"))
    assert [name for name, _ in lost[1]] == [name for name, _ in whole[1]], "a lost plan has the same testcases"
    assert lost[1][0][1].startswith("error=error: worker_lost: ")


def test_a_killed_session_has_its_files_and_can_be_rebuilt(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    done = run_toy(project, session, {"one": "pass", "two": "die", "three": "pass"})
    assert done.returncode == -signal.SIGKILL
    expected = {"one": "passed", "two": "error: worker_lost", "three": "not_started: interrupted"}
    assert outcomes_of(session) == expected, "complete even before a rebuild"
    before = (session / "junit.xml").read_bytes()
    for name in ("session.json", "junit.xml"):
        (session / name).unlink()
    # Half a line is what a killed process leaves at worst.
    with (session / "journal-main.jsonl").open("a") as file:
        file.write('{"schema":1,"t_wall":99')
    rebuilt = run_reports("rebuild", session)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert rebuilt.stderr == ""
    assert outcomes_of(session) == expected
    assert (session / "junit.xml").read_bytes() == before
    assert session_of(session)["session"]["finished"] is None
    first = (session / "session.json").read_bytes()
    run_reports("rebuild", session)
    assert (session / "session.json").read_bytes() == first, "the same bytes twice"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_after_sigterm_the_files_are_there_before_teardown_ends(project: Path, tmp_path: Path, workers: str) -> None:
    session, go = tmp_path / "session", tmp_path / "go"
    script = {"one": "pass", "two": "interrupt", "three": "pass"} if workers == "0" else {"one": "pass", "two": "pass"}
    environment = toy_environment(session, script, TOY_GO=str(go))
    if workers == "0":
        command = [sys.executable, "-m", "pytest", "-k", "two or three"]
    else:
        command = [sys.executable, "-m", "pytest", "-n", workers]
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        if workers == "2":
            _wait_for(lambda: len(list(session.glob("*/result.json"))) == 2)
            process.send_signal(signal.SIGTERM)
        journal = session / "journal-main.jsonl"
        _wait_for(lambda: journal.exists() and '"kind": "interrupt"' in journal.read_text())
        _wait_for(lambda: (session / "junit.xml").exists() and (session / "session.json").exists())
        if workers == "0":
            _wait_for(lambda: outcomes_of(session).get("two") == "error: interrupted")
            assert outcomes_of(session) == {"two": "error: interrupted", "three": "not_started: interrupted"}
            assert process.poll() is None, "teardown is still waiting"
        else:
            _wait_for(lambda: outcomes_of(session) == {"one": "passed", "two": "passed"})
    finally:
        go.touch()
        process.communicate(timeout=60)
    assert process.returncode == 2
    assert session_of(session)["session"]["exit_status"] == 2


def test_a_test_that_fails_outside_its_run_is_red_here_too(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    done = run_toy(project, session, {"one": "break", "two": "assert"})
    assert done.returncode == 1
    assert outcomes_of(session) == {"one": "error: harness", "two": "error: harness"}
    results = session_of(session)["results"]
    assert "RuntimeError: the fixture broke" in results[0]["outcome"]["reason"]
    assert "after its verdict" in results[1]["outcome"]["reason"]
    assert results[1]["metrics"]["mfu"]["value"] == 0.347, "what was measured is kept"
    table = done.stdout.partition("= trainmark =")[2].partition("= short test summary")[0]
    assert "\x1b" not in table and "\\x1b[31m" in table


def test_stopping_at_the_first_failure_shows_what_was_not_reached(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    done = run_toy(project, session, {"one": "miss", "two": "pass"}, "-x")
    assert outcomes_of(session) == {"one": "failed: quality", "two": "not_started: interrupted"}
    assert "exit status" in session_of(session)["results"][1]["outcome"]["reason"]
    assert "1 not_started" in done.stdout


def test_without_a_session_nothing_is_written_or_said(project: Path) -> None:
    before = sorted(project.iterdir())
    done = run_toy(project, None, {}, "--collect-only", "-q", PYTHONDONTWRITEBYTECODE="1")
    assert "trainmark" not in done.stdout + done.stderr
    assert sorted(project.iterdir()) == before


def test_an_unwritable_report_is_told_in_one_line_and_hides_no_verdict(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    # A folder in a file's place cannot be replaced: the same OSError path as a full disk, also for root.
    for name in ("session.json", "junit.xml", "journal-main.jsonl"):
        (session / name / "in the way").mkdir(parents=True)
    done = run_toy(project, session, {"one": "pass", "two": "miss"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    table = done.stdout[done.stdout.index("= trainmark =") :]
    assert "1 failed, 1 passed" in table
    told = [line for line in table.splitlines() if line.startswith("report problem: ")]
    assert any("session.json: cannot be written" in line for line in told)
    assert any("junit.xml: cannot be written" in line for line in told)
    assert not list(session.glob(".*partial"))


def test_a_worker_hands_over_what_the_disk_refused(project: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    for name in ("journal-gw0.jsonl", "journal-gw1.jsonl"):
        (session / name).mkdir(parents=True)
    done = run_toy(project, session, {"one": "pass", "two": "unavailable"}, "-n", "2")
    assert outcomes_of(session) == {"one": "passed", "two": "not_started: unavailable"}
    assert "report problem: " in done.stdout and "journal-gw" in done.stdout


def test_a_terminal_of_the_locale_c_is_no_obstacle(project: Path, tmp_path: Path) -> None:
    done = run_toy(
        project, tmp_path / "séance", {"one": "pass"}, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed; reports:" in done.stdout
    assert outcomes_of(tmp_path / "séance") == {"one": "passed"}


def _wait_for(holds: object, seconds: float = 60.0) -> None:
    """Until `holds()` is true; fails after the deadline."""
    assert callable(holds)
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def test_nothing_of_the_toys_is_left(tmp_path: Path) -> None:
    marks = [entry for entry in Path("/proc").glob("[0-9]*/environ") if _mentions(entry, f"{tmp_path.parent}")]
    assert [mark for mark in marks if mark.parent.name != str(os.getpid())] == []


def _mentions(entry: Path, text: str) -> bool:
    try:
        return f"TOY_SESSION={text}".encode() in entry.read_bytes()
    except OSError:
        return False
