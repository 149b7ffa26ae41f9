"""A session that has lost a result is not judged by those that are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.reporter import Reporter
from suite.verdict import judge_folder
from tests.run_folders import tiny_plan, write_plan_folder


def test_a_selected_plan_without_a_result_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, plan = tmp_path / "session", tiny_plan()
    write_plan_folder(folder / plan.id, plan)
    reporter = Reporter(folder, "main")
    reporter.announce({"kind": "session", "id": "s", "started": "2026-01-31T12:00:00Z"})
    reporter.announce({"kind": "plan", "id": plan.id, "folder": plan.id, "plan": plan.model_dump(mode="json")})
    result = judge_folder(folder / plan.id).model_dump(mode="json")
    reporter.announce({"kind": "verdict", "id": plan.id, "folder": plan.id, "result": result})
    reporter.announce({"kind": "session", "finished": "2026-01-31T12:10:00Z", "exit_status": 0})
    assert main(["rebuild", str(folder), "--no-plots"]) == 0
    assert main(["gate", str(folder)]) == 0
    path = folder / "session.json"
    report = json.loads(path.read_text())
    report["selected"].append("toy-pytorch-cpu-host-1x2")
    path.write_text(json.dumps(report))
    capsys.readouterr()
    assert main(["gate", str(folder)]) == 2
    assert "`toy-pytorch-cpu-host-1x2: expected here and not in the session`" in capsys.readouterr().out
