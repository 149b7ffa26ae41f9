"""GLM really trains; what is healthy passes, what is broken fails, and each for the right reason."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spine import GLM, ROOT, Clone, check_of, clone

pytestmark = pytest.mark.slow
DATA = ROOT / "suite/cases/glm/pytorch/data"


@pytest.fixture
def checkout(tmp_path: Path) -> Clone:
    """A copy of the checkout."""
    return clone(tmp_path)


def with_threshold(checkout: Clone, name: str, value: float, extra: str = "") -> list[str]:
    """A copy of the cpu vendor outside the checkout that declares a threshold; the option that names it."""
    folder = checkout.root.parent / f"{name}{value}" / "cpu"
    shutil.copytree(checkout.root / "suite/vendors/cpu", folder)
    for topology in ("1x1", "1x2"):
        config = folder / f"glm/pytorch/config_hostx{topology}.toml"
        text = config.read_text() if config.exists() else ""
        if name == "speedup" and topology == "1x1":
            continue
        config.write_text(f'{text}\n[preset.mini{extra}.threshold.{name}]\nvalue = {value}\nsource = "a test"\n')
    return ["--vendor-path", str(folder)]


def test_glm_reaches_its_target_in_time_and_the_verdict_replays(checkout: Clone) -> None:
    """An independent program finds the same accuracy in the checkpoint; edited evidence turns the replay red."""
    code, out = checkout.run("-k", "glm and 1x1", "--session", "s", *with_threshold(checkout, "time_to_train", 500.0))
    assert code == 0, out
    result = checkout.result("s", f"{GLM}-1x1")
    assert result["outcome"]["status"] == "passed"
    assert result["metrics"]["accuracy"]["value"] >= 0.7 == check_of(result, "quality")["threshold"]
    in_time = check_of(result, "time_to_train")
    assert (in_time["status"], in_time["threshold"], in_time["source"]) == ("pass", 500.0, "a test")

    folder = checkout.root / "s" / f"{GLM}-1x1" / "r1"
    done = subprocess.run(
        [sys.executable, ROOT / "tests/requality_glm.py", folder / "checkpoints/latest.pt", DATA],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["accuracy"] == result["metrics"]["accuracy"]["value"]

    assert checkout.reports("rejudge", "s")[0] == 0
    stream = folder / "events/rank0.jsonl"
    honest = stream.read_text()
    lines = honest.splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == "eval_result")
    lines[number] = (
        lines[number].replace('"accuracy":0.', '"accuracy":0.9').replace('"accuracy": 0.', '"accuracy": 0.9')
    )
    assert "".join(lines) != honest
    stream.write_text("".join(lines))
    code, out = checkout.reports("rejudge", "s")
    assert code == 1 and "invalid_measurement" in out


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(("--set", "lr=0.0", "--set", "max_samples=1600"), id="lr 0"),
        pytest.param(("--sabotage", "labels_shuffled"), id="shuffled", marks=pytest.mark.nightly),
    ],
)
def test_a_model_that_does_not_learn_fails_on_quality(checkout: Clone, broken: tuple[str, ...]) -> None:
    """The run goes to its end and misses the target; a model that stands still does so at any length."""
    code, out = checkout.run("-k", "glm and 1x1", "--session", "s", *broken)
    result = checkout.result("s", f"{GLM}-1x1")
    assert code == 1, out
    assert (result["outcome"]["status"], result["outcome"]["category"]) == ("failed", "quality")
    assert check_of(result, "quality")["value"] < 0.54
    assert "rerun: pytest suite" in out


@pytest.mark.nightly  # the driver's own tests, and two ranks of conformance, tell it in CI
def test_two_ranks_share_one_gradient(checkout: Clone) -> None:
    """1x2 reaches the target with equal parameters on both ranks, and the speedup is measured, whatever it is."""
    code, out = checkout.run("-k", "glm and 1x2", "--session", "s")
    assert code == 0, out
    result = checkout.result("s", f"{GLM}-1x2")
    assert check_of(result, "ranks_in_sync")["status"] == "pass"
    speedup = check_of(result, "speedup")
    assert speedup["status"] == "inconclusive" and speedup["threshold"] is None and not speedup["required"]
    assert result["base"]["id"] == f"{GLM}-throughput-1x1"

    (checkout.root / "s" / f"{GLM}-1x2" / "r1/events/rank1.jsonl").unlink()
    code, out = checkout.reports("rejudge", "s")
    assert code == 1 and "rank1.jsonl: missing" in out


def test_gradients_that_are_not_averaged_are_found(checkout: Clone) -> None:
    """No quality threshold catches a missing all-reduce; the checksum over the ranks does."""
    options = ["--sabotage", "gradients_not_averaged", "--set", "max_samples=1600"]
    code, out = checkout.run("--model", "glm", "--topology", "2x1", "--session", "s", *options)
    result = checkout.result("s", f"{GLM}-2x1")
    assert code == 1, out
    assert (result["outcome"]["status"], result["outcome"]["category"]) == ("failed", "ranks_diverged")
    assert result["division"] == "open"


@pytest.mark.nightly
def test_past_a_declared_time_to_train_the_run_ends_and_fails(checkout: Clone) -> None:
    """It ends early, far from its last sample: its verdict is certain."""
    code, out = checkout.run("-k", "glm and 1x1", "--session", "s", *with_threshold(checkout, "time_to_train", 1.0))
    result = checkout.result("s", f"{GLM}-1x1")
    assert code == 1, out
    assert check_of(result, "time_to_train")["status"] == "fail"
    assert check_of(result, "time_to_train")["threshold"] == 1.0
    assert result["outcome"]["category"] in ("quality", "time_to_train")
    assert result["metrics"]["samples_trained"]["value"] < result["params"]["max_samples"]


@pytest.mark.nightly
def test_a_declared_speedup_is_held(checkout: Clone) -> None:
    """Against the base measured before and after, in this session; the same numbers miss a higher threshold."""
    options = ["--mode", "throughput", *with_threshold(checkout, "speedup", 0.01, ".mode.throughput")]
    _, out = checkout.run("--model", "glm", "--topology", "1x2", "--session", "s", *options)
    result = checkout.result("s", f"{GLM}-throughput-1x2")
    speedup = check_of(result, "speedup")
    if speedup["status"] == "inconclusive" and re.search("no_steady_state|noise", speedup["reason"]):
        pytest.skip(f"the host is too noisy to measure a rate: {speedup['reason']}")
    assert speedup["status"] == "pass", out
    assert len(result["base"]["values"]) == 2

    path = checkout.root / "s" / f"{GLM}-throughput-1x2" / "plan.json"
    plan = json.loads(path.read_text())
    assert check_of(plan, "speedup")["threshold"] == 0.01
    check_of(plan, "speedup")["threshold"] = 1e6  # bases that differ much make a wide interval
    path.write_text(json.dumps(plan))
    code, out = checkout.reports("rejudge", "s", "--write")
    missed = checkout.result("s", f"{GLM}-throughput-1x2")
    assert code == 1, out
    assert (missed["outcome"]["status"], missed["outcome"]["category"]) == ("failed", "speedup")
    assert check_of(missed, "speedup")["value"] == speedup["value"]


def test_a_copied_case_runs_without_touching_a_line(checkout: Clone) -> None:
    """A new case is a new folder, and one of the vendor's."""
    for folder in ("suite/cases", "suite/vendors/cpu"):
        shutil.copytree(checkout.root / folder / "glm", checkout.root / folder / "phrases")
    case = checkout.root / "suite/cases/phrases/pytorch"
    (case / "test_glm.py").rename(case / "test_phrases.py")
    code, out = checkout.run("--model", "phrases", "--topology", "1x1", "--mode", "throughput", "--session", "s")
    assert code == 5, out
    result = checkout.result("s", "phrases-pytorch-cpu-host-mini-throughput-1x1")
    assert (result["outcome"]["status"], result["outcome"]["category"]) == ("inconclusive", "no_threshold")
    assert result["metrics"]["steps"]["value"] == 120
