"""What other tools get: CSV, OpenMetrics, job summary, pytest-benchmark, TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reports.__main__ import main
from suite.outcome import Outcome
from suite.result import MetricResult
from tests.reports2_toy import real_session, result_with, session_with

EVIL = '=cmd|"x" @team \x1b[31m\nsecond, line `` \\ "'


def exported(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `export` writes into a file."""
    path = folder.parent / f"out.{kind}"
    assert main(["export", kind, str(folder), "--output", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    return path.read_text(encoding="utf-8")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Two runs of one plan, and a plan that was lost with a hostile reason."""
    lost = Outcome(status="error", category="crash", reason=EVIL)
    return session_with(
        tmp_path / "s", [result_with(throughput=(100.0, 101.5)), result_with("lost", outcome=lost, metrics={}, runs=())]
    )


def test_csv_has_a_line_for_each_metric_of_each_run_and_one_for_a_lost_plan(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(exported("csv", session, capsys))))
    measured = [row for row in rows if row["metric"] == "throughput_train"]
    assert [(row["run"], float(row["value"]), row["unit"]) for row in measured] == [
        ("1", 100.0, "image/s"),
        ("2", 101.5, "image/s"),
    ]
    (lost,) = [row for row in rows if row["model"] == "lost"]
    assert (lost["outcome"], lost["metric"], lost["value"]) == ("error", "", ""), "missing is empty, never 0"


def test_csv_holds_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = session_with(tmp_path / "s", [result_with(plan={"machine": "=1+1"})])
    rows = list(csv.DictReader(io.StringIO(exported("csv", folder, capsys))))
    assert {row["machine"] for row in rows} == {"'=1+1"}


def test_openmetrics_is_well_formed(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = exported("openmetrics", session, capsys)
    assert text.endswith("# EOF\n")
    sample = re.compile(r'trainmark_[a-zA-Z0-9_]+\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)+\} [0-9.e+-]+')
    lines = text.splitlines()[:-1]
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)), "a family is told once"
    assert 'trainmark_outcome{plan="lost-pytorch-cpu-host-mini-1x1",status="error",category="crash"} 1' in lines


def test_a_metric_of_any_name_is_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {'mAP@[.5"]\n': MetricResult(value=0.3, unit="", values=(0.3,))}
    text = exported("openmetrics", session_with(tmp_path / "s", [result_with(metrics=metrics)]), capsys)
    assert "trainmark_mAP___5___{" in text


def test_the_job_summary_is_a_table_that_nothing_breaks(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = exported("github", session, capsys)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4 and len({line.count("|") for line in table}) == 1
    reason = next(line for line in text.splitlines() if "@team" in line)
    assert reason.startswith("- `") and "\x1b" not in text and "second, line" in reason


def test_pytest_benchmark_compares_two_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, speed in (("a", 100.0), ("b", 80.0)):
        folder = session_with(tmp_path / name, [result_with(throughput=(speed, speed + 1, speed + 2))])
        (tmp_path / f"{name}.json").write_text(exported("benchmark-json", folder, capsys))
        files.append(str(tmp_path / f"{name}.json"))
    data = json.loads((tmp_path / "a.json").read_text())
    assert [one["fullname"] for one in data["benchmarks"]] == [
        "toy-pytorch-cpu-host-mini-1x1[step_time_median_s]",
        "toy-pytorch-cpu-host-mini-1x1[time_to_train_s]",
    ]
    assert data["benchmarks"][0]["stats"]["rounds"] == 3
    command = [sys.executable, "-m", "pytest_benchmark", "compare", *files, "--csv", str(tmp_path / "compared.csv")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "compared.csv").open()))
    means = sorted(float(row["mean"]) for row in rows if "step_time" in row["name"])
    assert means == pytest.approx([sum(10 / s for s in (100, 101, 102)) / 3, sum(10 / s for s in (80, 81, 82)) / 3])


def test_tensorboard_gets_evaluations_losses_and_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    folder, plan = real_session(tmp_path / "s")
    assert main(["export", "tensorboard", str(folder), "--output", str(tmp_path / "tb")]) == 0
    (events,) = (tmp_path / "tb" / plan.id / "r1").glob("events.out.tfevents*")
    content = events.read_bytes()
    for tag in (b"evaluation/accuracy", b"training/loss", b"metric/throughput_train"):
        assert tag in content
    capsys.readouterr()


def test_a_folder_of_files_needs_a_name(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "mllog", str(session)]) == 4
    assert "--output" in capsys.readouterr().err
