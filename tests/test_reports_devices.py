"""A file that a user names for an output is never put in the place of a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.__main__ import main
from reports.reporter import Reporter
from suite.verdict import judge_folder
from tests.run_folders import tiny_plan, write_plan_folder

COMMANDS = (
    ("gate", "--comment"),
    ("bundle", "--output"),
    ("html", "--no-plots", "--single-file"),
    ("export", "csv", "--output"),
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with one plan that passed."""
    folder = tmp_path_factory.mktemp("devices") / "session"
    plan = tiny_plan()
    write_plan_folder(folder / plan.id, plan)
    reporter = Reporter(folder, "main")
    reporter.announce({"kind": "session", "id": "s", "started": "2026-01-31T12:00:00Z"})
    reporter.announce({"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")})
    result = judge_folder(folder / plan.id).model_dump(mode="json")
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result})
    reporter.announce({"kind": "session", "finished": "2026-01-31T12:10:00Z", "exit_status": 0})
    assert main(["rebuild", str(folder), "--no-plots"]) == 0
    return folder


@pytest.mark.parametrize("device", ["/dev/null", "/proc/self/fd/1"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_device_stays_one(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], device: str
) -> None:
    """As `/dev/stdout` is, the name is a link here, so that nothing of the host is harmed if this fails."""
    name = tmp_path / "out"
    name.symlink_to(device)
    where = 1 if command[0] != "export" else 2
    assert main([*command[:where], str(session), *command[where:], str(name)]) == 4
    assert f"error: {name}: a device, no file to be replaced; name a file" in capsys.readouterr().err
    assert name.is_symlink() and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_ordinary_link_and_an_old_file_are_replaced(session: Path, tmp_path: Path) -> None:
    """What is no device is written as ever."""
    old, link = tmp_path / "old.csv", tmp_path / "link.csv"
    old.write_text("old")
    link.symlink_to(tmp_path / "nowhere")
    for path in (old, link):
        assert main(["export", "csv", str(session), "--output", str(path)]) == 0
        assert path.read_text().startswith("session,started,")
