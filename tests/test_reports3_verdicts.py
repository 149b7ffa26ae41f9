"""A slowdown injected into run folders, and what the commands make of it; the least that can be seen, in the table."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from reports.__main__ import main
from reports.json_report import read_session
from reports.table import table
from suite.plan import Check
from suite.result import MetricResult
from suite.verdict import judge_folder
from tests.reports2_toy import noisy, real_session, result_with
from tests.run_folders import tiny_plan

RUNS, NOISE, STEP_S = 8, 0.005, 0.1


def session_of_speed(folder: Path, slower: float, seed: int) -> Path:
    """A session of eight runs whose steps are `slower` than 0.1 s, and differ by half a percent from run to run."""
    draw = random.Random(seed)
    runs = [{"step_s": STEP_S * (1 + slower) * (1 + draw.gauss(0, NOISE)), "noise": 0.001} for _ in range(RUNS)]
    return real_session(folder, runs=runs, repeat=RUNS, seeds=tuple(range(1, RUNS + 1)))[0]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """As it was, 3 % slower, and 0.3 % slower."""
    root = tmp_path_factory.mktemp("speed")
    shares = {"before": 0.0, "three": 0.03, "third": 0.003}
    return {name: session_of_speed(root / name, share, n) for n, (name, share) in enumerate(shares.items(), 1)}


@pytest.fixture(scope="module")
def baselines(sessions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first session as the approved baseline, by the commands that a reviewer uses."""
    folder = tmp_path_factory.mktemp("baselines")
    assert main(["baseline", "propose", str(sessions["before"]), "--folder", str(folder)]) == 0
    (proposed,) = folder.rglob("*.toml")
    assert main(["baseline", "approve", str(proposed), "--by", "a reviewer"]) == 0
    return folder


@pytest.mark.parametrize(("name", "codes"), [("three", {1}), ("third", {0, 5})])
def test_compare_tells_a_slowdown_from_noise(
    sessions: dict[str, Path], name: str, codes: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(sessions["before"]), str(sessions[name])]) in codes
    assert ("regression" in capsys.readouterr().out) == (name == "three")


@pytest.mark.parametrize(("name", "code"), [("three", 1), ("third", 0)])
def test_the_gate_says_the_same_twenty_times(
    sessions: dict[str, Path], baselines: Path, name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["gate", str(sessions[name]), "--baseline", str(baselines)]
    said = set()
    for _ in range(20):
        assert main(command) == code
        said.add(capsys.readouterr().out)
    assert len(said) == 1
    assert ("throughput_train: worse by" in said.pop()) == (name == "three")


def test_twenty_judgements_of_the_same_folders_are_one(sessions: dict[str, Path], tmp_path: Path) -> None:
    plan = next(sessions["three"].glob("*/plan.json")).parent
    assert len({judge_folder(plan).model_dump_json() for _ in range(20)}) == 1
    shutil.copytree(plan, tmp_path / plan.name)
    moved = judge_folder(tmp_path / plan.name)
    assert moved.outcome == judge_folder(plan).outcome and moved.metrics == judge_folder(plan).metrics


def shown(values: tuple[float, ...], **check: Any) -> str:
    """The row of a plan whose throughput is held to 90."""
    held = {
        "name": "throughput",
        "metric": "throughput_train",
        "op": ">=",
        "threshold": 90.0,
        "required": True,
        **check,
    }
    checks = (*(each for each in tiny_plan().checks if each.name != "throughput"), Check.model_validate(held))
    metrics = {"throughput_train": MetricResult(value=100.0, unit="image/s", values=values)}
    return table([result_with(plan={"checks": checks}, metrics=metrics)])


def test_the_least_that_can_be_seen_stands_beside_the_threshold() -> None:
    values = noisy(100, 8, 0.005)
    least = (15.7 * (stdev(values) / fmean(values)) ** 2 / 8) ** 0.5
    text = shown(values)
    assert f"42.4 >= 90 ~{100 * least:.2g} %" in text, text
    assert "~: the smallest change that so many runs of this spread can show" in text


@pytest.mark.parametrize("values", [(100.0,), (100.0, 101.0, 99.0)], ids=["one run", "three runs"])
def test_runs_that_can_show_nothing_claim_nothing(values: tuple[float, ...]) -> None:
    assert "~" not in shown(values)


def test_a_number_without_threshold_has_nothing_beside_it() -> None:
    assert "~" not in shown(noisy(100, 8, 0.005), threshold=None, required=False)


def test_the_table_of_a_real_session_has_it(sessions: dict[str, Path]) -> None:
    text = table(read_session(sessions["before"]).results)
    assert "<= 600 ~" in text and "~: the smallest change" in text
