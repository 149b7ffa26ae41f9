"""History in a database that can be made again, and pruning that touches nothing else."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.prune import Rules, choose, duration, prune
from suite.errors import UsageProblem
from suite.outcome import Outcome
from tests.reports2_toy import result_with, session_with

NOW = datetime(2026, 6, 1, tzinfo=UTC)
OLD, NEWER, NEWEST = "20260101T000000Z-aaaa", "20260201T000000Z-bbbb", "20260531T000000Z-cccc"
PLAN = "toy-pytorch-cpu-host-mini-1x1"


def stamp(name: str) -> str:
    """`started` of a session's id."""
    return f"{name[:4]}-{name[4:6]}-{name[6:8]}T00:00:00Z"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three sessions, the second in another environment, and `latest`."""
    folder = tmp_path / "results"
    for name, speed, driver in ((OLD, 100.0, "f"), (NEWER, 104.0, "e"), (NEWEST, 103.0, "f")):
        result = result_with(throughput=(speed,), comparability_key=driver * 64)
        session_with(folder / name, [result], started=stamp(name))
    (folder / "latest").symlink_to(NEWEST)
    return folder


def test_a_metric_over_all_sessions(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "toy*", "--results", str(results)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(PLAN)]
    assert [row.split()[2] for row in rows] == [OLD, NEWER, NEWEST], "once each, `latest` is no session of its own"
    assert "other environment" in rows[1] and "+3.00 %" in rows[2], "compared with the last of its own environment"
    assert main(["history", "none*", "--results", str(results)]) == 4
    assert "has such a plan" in capsys.readouterr().err


def test_a_session_without_the_number_shows_none(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--results", str(results), "--metric", "mfu"]) == 0
    assert "0" not in {line.split()[-3] for line in capsys.readouterr().out.splitlines() if "1 %" in line}
    with sqlite3.connect(results / "history.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM metric WHERE name = 'mfu'").fetchone() == (0,)


def test_the_database_follows_the_folders_and_can_be_made_again(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["history", "--results", str(results)]
    assert main(command) == 0
    before = capsys.readouterr().out
    session_with(results / NEWEST, [result_with(throughput=(90.0,), comparability_key="f" * 64)], started=stamp(NEWEST))
    assert main(command) == 0
    assert "-10.00 %" in capsys.readouterr().out, "a session that was judged again is taken in again"
    session_with(
        results / NEWEST, [result_with(throughput=(103.0,), comparability_key="f" * 64)], started=stamp(NEWEST)
    )
    assert main([*command, "--rebuild"]) == 0
    assert capsys.readouterr().out == before


def test_what_is_no_history_is_neither_read_nor_replaced(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = results / "other.sqlite"
    for content in (b"text, and no database" * 50, None):
        other.unlink(missing_ok=True)
        if content is None:
            with sqlite3.connect(other) as connection:
                connection.execute("CREATE TABLE mine (x)")
        else:
            other.write_bytes(content)
        kept = other.read_bytes()
        for more in ([], ["--rebuild"]):
            assert main(["history", "--results", str(results), "--database", str(other), *more]) == 4
            assert str(other) in capsys.readouterr().err
        assert other.read_bytes() == kept


def test_a_broken_session_is_told_and_the_others_shown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / OLD / "session.json").write_text("{")
    assert main(["history", "--results", str(results)]) == 0
    shown = capsys.readouterr()
    assert "not JSON" in shown.err and NEWER in shown.out


def rules(keep: str = "30d", *, failed: bool = False) -> Rules:
    """Of a prune on the first of June."""
    return Rules(duration(keep), failed, NOW)


def gone(results: Path, rule: Rules, *baselines: Path) -> set[str]:
    """What would go."""
    return {choice.folder.name for choice in choose(results, rule, baselines) if choice.goes}


def test_old_sessions_go_and_young_ones_stay(results: Path) -> None:
    assert gone(results, rules("30d")) == {OLD, NEWER}
    assert gone(results, rules("130d")) == {OLD}
    assert gone(results, rules("12h")) == {OLD, NEWER}, "the latest stays, however old"
    assert [path.name for path in prune(choose(results, rules("130d"), []))] == [OLD]
    assert not (results / OLD).exists() and (results / NEWER / "session.json").is_file()


def test_failures_stay_on_request(results: Path) -> None:
    failed = Outcome(status="failed", category="quality", reason="0.5")
    session_with(results / OLD, [result_with(outcome=failed)], started=stamp(OLD))
    assert gone(results, rules(failed=True)) == {NEWER}
    assert gone(results, rules()) == {OLD, NEWER}


def test_sources_of_baselines_stay_whatever_their_state(results: Path, tmp_path: Path) -> None:
    assert main(["baseline", "propose", str(results / OLD), "--folder", str(tmp_path / "b")]) == 0
    assert gone(results, rules(), tmp_path / "b") == {NEWER}
    (path,) = (tmp_path / "b").rglob("*.toml")
    path.write_text("state = ")
    with pytest.raises(UsageProblem, match="TOML"):
        choose(results, rules(), [tmp_path / "b"])


def test_a_session_that_another_was_measured_against_stays(results: Path) -> None:
    plan = results / NEWEST / PLAN
    plan.mkdir()
    base = {"event": "base", "folder": str((results / OLD / PLAN).absolute()), "reused": True}
    (plan / "harness.jsonl").write_text(json.dumps(base) + "\n")
    assert gone(results, rules()) == {NEWER}


def test_a_session_whose_jobs_nobody_has_collected_stays(results: Path) -> None:
    """It ended when it had submitted them: they may wait for weeks."""
    job = results / OLD / "jobs" / PLAN / "job.json"
    job.parent.mkdir(parents=True)
    job.write_text("{}")
    (results / OLD / PLAN / "result.json").unlink(missing_ok=True)
    assert gone(results, rules()) == {NEWER}
    (results / OLD / PLAN).mkdir(exist_ok=True)
    (results / OLD / PLAN / "result.json").write_text("{}")
    assert gone(results, rules()) == {OLD, NEWER}


def test_nothing_that_is_not_ours_goes(results: Path, tmp_path: Path) -> None:
    elsewhere = session_with(tmp_path / "elsewhere" / "20250101T000000Z-dddd", [result_with()])
    (results / "20250101T000000Z-dddd").symlink_to(elsewhere)
    for name in ("notes", "20250101T000000Z-eeee", "20250101T000000Z-ffff"):
        (results / name).mkdir()
        (results / name / "thesis.txt").write_text("mine")
    (results / "20250101T000000Z-ffff" / "session.json").write_bytes((results / OLD / "session.json").read_bytes())
    running = session_with(results / "20250101T000000Z-abcd", [result_with()], exit_status=None, finished=None)
    choices = choose(results, Rules(timedelta(days=30), False, datetime.now(UTC)), [])
    assert running.name not in {choice.folder.name for choice in choices if choice.goes}, "it may still run"
    assert gone(results, rules()) - {running.name} == {OLD, NEWER}
    for _ in prune(choose(results, rules(), [])):
        pass
    assert (elsewhere / "session.json").is_file() and (results / "notes" / "thesis.txt").is_file()
    assert (results / "20250101T000000Z-ffff").is_dir(), "its session.json is of another session"


def test_prune_on_the_command_line(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", str(results), "--keep", "3w"]) == 4
    assert "--keep '3w'" in capsys.readouterr().err
    assert main(["prune", str(results), "--keep", "30d", "--dry-run"]) == 0
    assert f"goes: {results / OLD}" in capsys.readouterr().out and (results / OLD).is_dir()
    assert main(["prune", str(results), "--keep", "30d"]) == 0
    assert "deleted: 2 of 3" in capsys.readouterr().out and not (results / OLD).exists()
