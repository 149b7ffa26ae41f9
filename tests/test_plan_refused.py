"""What cannot be run is told before anything starts: NeMo's rules at planning, evaluations that no host can start."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fixtures.requality import main as requality
from suite.catalog import Catalog, load_catalog
from suite.drivers.scripts.adapters.nemo_rules import problem
from suite.errors import UsageProblem
from suite.plan import Request
from suite.selection import plans
from tests.reports2_toy import real_session

ROOT = Path(__file__).resolve().parent.parent
LIMIT, MOST = "training.run.time_limit", "training.trainer.max_time"
STEPS, EVERY = "training.trainer.max_steps", "training.trainer.val_check_interval"


@cache
def catalog() -> Catalog:
    """The shipped cases and vendors."""
    return load_catalog(ROOT / "suite")


def nemo(*sets: str) -> Request:
    """A request for NeMo's case."""
    return Request(vendor="nvidia", machine="A100", models=("gpt3",), frameworks=("nemo",), sets=sets)


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (("max_time=00:01:45:00",), f"{MOST}=00:01:45:00 leaves less than 1800 s of {LIMIT}=0-02:00:00"),
        (("time_limit=0-01:00:00",), f"{MOST}=00:01:30:00 leaves less than 1800 s of {LIMIT}=0-01:00:00"),
        (("max_time=90 minutes",), f"{MOST}=90 minutes is no time: write days, hours, minutes and seconds"),
        (("val_check_interval=2001",), f"{EVERY}=2001 is more than {STEPS}=2000: no validation would be made"),
        (("max_steps=100",), f"{EVERY}=240 is more than {STEPS}=100: no validation would be made"),
    ],
)
def test_values_that_nemo_would_refuse_are_refused_at_planning(sets: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        plans(catalog(), nemo(*sets))
    assert str(raised.value).startswith(f"cases/gpt3/nemo/case.toml: [script.arguments]: {sentence}")


@pytest.mark.parametrize("sets", [(), ("max_time=00:01:00:00",), ("max_steps=240",), ("val_check_interval=2000",)])
def test_values_that_go_together_are_planned(sets: tuple[str, ...]) -> None:
    assert [str(plan.topology) for plan in plans(catalog(), nemo(*sets))] == ["1x8", "2x8"]


@pytest.mark.parametrize(
    "word", ["--plan", pytest.param("--collect-only", marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_the_command_says_so_and_leaves_with_4(tmp_path: Path, word: str) -> None:
    argv = [sys.executable, "-m", "pytest", "suite", "-p", "no:cacheprovider", "--vendor", "nvidia", "-q", word]
    argv += ["--machine", "A100", "--model", "gpt3", "--framework", "nemo", "--set", "max_steps=100"]
    argv += ["--results", str(tmp_path / "results")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no validation would be made; lower it" in done.stdout + done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((f"{MOST}=00:00:30:00", f"{LIMIT}=0-00:30:00"), ""),
        (("--margin_s", "1", f"{MOST}=00:00:30:00", f"{LIMIT}=0-00:30:00"), "leaves less than 1 s"),
        ((f"{MOST}=00:00:30:00",), ""),
        ((f"{LIMIT}=x",), f"{LIMIT}=x is no time"),
        ((f"{EVERY}=3", f"{STEPS}=2"), "no validation would be made"),
        ((f"{EVERY}=0.5", f"{STEPS}=2"), ""),
        ((), ""),
    ],
)
def test_the_rules_ask_only_for_what_is_said(words: tuple[str, ...], said: str) -> None:
    assert said in problem(words) and bool(problem(words)) is bool(said)


@pytest.mark.parametrize("how", ["the site", "the option"])
def test_an_evaluation_under_pyxis_is_refused_before_anything_starts(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, plan = real_session(tmp_path / "s")
    site = ROOT / "fixtures/sites/azure-a100.toml"
    words = ["--site", str(site)] if how == "the site" else ["--container", "pyxis"]
    assert requality([str(folder), *words]) == 4
    said = capsys.readouterr().err
    assert said.startswith(
        "error: --container pyxis starts in jobs of Slurm alone, and an evaluation runs on this host"
    )
    assert "say --container docker or podman, or --container none" in said
    assert not (folder / plan.id / "requality").exists()
