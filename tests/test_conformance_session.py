"""`pytest suite/conformance` as its user runs it: named or not, sound or broken, with one rank and with two."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fixtures.bundle import TRAINING_PARTS, Bundle
from fixtures.conformance import rerun_command, settle_conformance, summary_lines, take_capabilities
from fixtures.option_table import OPTIONS
from suite.capabilities import CAPABILITIES
from suite.conformance.checks import BY_NAME, SABOTAGES
from suite.errors import UsageProblem
from suite.events import NAMES
from suite.verdict import judge_folder
from tests.conformance_toy import ROOT, write_run
from tests.spine import tagged

PAIR = "conformance-pytorch-cpu-host-1x2"


def pytest_here(*argv: str, timeout_s: float = 60) -> tuple[int, str]:
    """(exit code, output) of pytest in the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *argv, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    return done.returncode, done.stdout + done.stderr


def given(**options: Any) -> argparse.Namespace:
    """pytest's namespace with these options of ours."""
    empty = {option.dest: [] if option.many else None if option.takes else False for option in OPTIONS}
    return argparse.Namespace(**empty | {f"trainmark_{name}": value for name, value in options.items()})


# What is named


def test_it_is_collected_only_when_named() -> None:
    code, out = pytest_here("suite/conformance", "--vendor", "cpu", "--collect-only", "-q", "--topology", "1x2")
    assert code == 0 and f"test_chip_conforms[{PAIR}]" in out and "1 test collected" in out
    code, out = pytest_here("suite", "--vendor", "cpu", "--collect-only", "-q", "--model", "glm")
    assert code == 0 and "glm" in out and "test_chip_conforms" not in out


def test_it_stands_outside_the_plans_of_cases() -> None:
    code, out = pytest_here("suite/conformance", "suite/cases/glm", "--vendor", "cpu")
    assert code == 4 and "suite/cases/glm: suite/conformance stands outside the plans of cases" in out
    assert "Traceback" not in out


def test_a_plan_is_printed_and_nothing_is_made(tmp_path: Path) -> None:
    argv = ("suite/conformance", "--vendor", "cpu", "--plan", "--topology", "1x2", "--results", str(tmp_path / "r"))
    code, out = pytest_here(*argv)
    assert code == 0, out
    assert PAIR in out and "all_reduce: all_reduce_wrong <= 0" in out and "rank.py" in out
    assert not (tmp_path / "r").exists()


def test_a_word_in_no_name_is_told_and_leaves_no_folder(tmp_path: Path) -> None:
    argv = ("suite/conformance", "--vendor", "cpu", "--topology", "1x2", "-k", "2x11", "--results", str(tmp_path / "r"))
    code, out = pytest_here(*argv)
    assert code == 5 and "-k '2x11' matches no plan: '2x11' stands in no name here" in out
    assert "reports:" not in out and not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": ["glm"]}, "--model is about cases, and suite/conformance has none; leave it out"),
        ({"set": ["lr=1"]}, "--set is about cases"),
        ({"submit": True}, "--submit is about cases"),
        ({"sabotage": "seed_ignord"}, "--sabotage"),
        ({"sabotage": "labels_shuffled"}, "--sabotage"),
        ({"vendor": "cpux"}, "--vendor cpux: no such folder under suite/vendors (did you mean 'cpu'?)"),
        ({"topology": ["2"]}, "topology '2' is not <nodes>x<devices>"),
        ({"machine": "H9"}, "--machine H9: no such file"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        settle_conformance(given(**{"vendor": "cpu", "results": str(tmp_path / "r"), **options}), tmp_path, runs=True)
    assert told in str(problem.value) and "\n" not in str(problem.value)
    assert not (tmp_path / "r").exists(), "no folder is made for a session that cannot be"


def test_what_is_staged_is_all_that_a_rank_imports(tmp_path: Path) -> None:
    """As on a host that shares no folder with this one."""
    parts = [ROOT / part for part in TRAINING_PARTS]
    bundle = Bundle.of([*parts, ROOT / "suite/conformance/chip/pytorch"])
    with bundle.archive() as (file, _, _), tarfile.open(fileobj=file) as archive:
        archive.extractall(tmp_path, filter="data")
    program = "import suite.conformance.chip.pytorch.train as rank; print(rank.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == str(tmp_path / "suite/conformance/chip/pytorch/train.py"), done.stderr


def test_the_page_explains_every_check_capability_and_sabotage() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert [name for name in (*BY_NAME, *CAPABILITIES, *SABOTAGES) if f"`{name}`" not in page] == []
    assert {"finding", "capability"} <= NAMES
    assert all(f"| `{name}` |" in (ROOT / "docs/contracts.md").read_text() for name in ("finding", "capability"))


# The list


def test_the_list_is_written_with_the_command_that_adopts_it(tmp_path: Path) -> None:
    ground = settle_conformance(given(vendor="cpu", results=str(tmp_path)), tmp_path, runs=True)
    assert ground.session is not None
    plan = next(plan for plan in ground.plans if plan.world_size == 1)
    write_run(tmp_path / "a", plan)
    take_capabilities(ground, judge_folder(tmp_path / "a"))
    path = ground.session.folder / "capabilities.toml"
    assert tomllib.loads(path.read_text())["compile"] is False
    text = "\n".join(summary_lines(ground))
    assert "cpu host has: bf16" in text and "lacks compile (torch.compile; without it" in text and "no compiler" in text
    assert f"install -D -m 644 {path}" in text and "baselines/cpu/capabilities.toml" in text
    assert "fp64" in text.partition("not asked")[2]
    assert rerun_command("suite/conformance", ground, plan).startswith(
        "pytest suite/conformance --vendor cpu --topology 1x1"
    )


def test_the_list_of_a_chip_that_failed_is_not_to_be_adopted(tmp_path: Path) -> None:
    ground = settle_conformance(given(vendor="cpu", results=str(tmp_path)), tmp_path, runs=True)
    plan = ground.plans[0]
    write_run(tmp_path / "a", plan, over={(0, "seeds"): {"value": 2.0, "remark": "one seed, two series: normal"}})
    take_capabilities(ground, judge_folder(tmp_path / "a"))
    text = "\n".join(summary_lines(ground))
    assert "not to be adopted: conformance-pytorch-cpu-host-1x1" in text and "install" not in text


# Real runs


@pytest.mark.slow
def test_the_host_conforms_with_two_ranks_and_the_verdict_replays(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    argv = ("suite/conformance", "--vendor", "cpu", "--topology", "1x2", "--session", str(folder))
    code, out = pytest_here(*argv, timeout_s=400)
    assert code == 0, out
    assert "ok  all_reduce" in out and "cpu host has:" in out and "install -D" in out
    result = json.loads((folder / PAIR / "result.json").read_text())
    status = {check["name"]: check["status"] for check in result["checks"]}
    expected = ("devices", "synchronise", "timers", "dtype_fp32", "dtype_bf16", "seeds", "backend")
    collectives = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
    assert {name: status[name] for name in (*expected, *collectives)} == dict.fromkeys(
        (*expected, *collectives), "pass"
    )
    assert status["fast_path"] == status["memory_returned"] == "inconclusive"
    found = tomllib.loads((folder / "capabilities.toml").read_text())
    assert found["bf16"] is found["all_to_all"] is True and found["tf32"] is False
    suites = ElementTree.parse(folder / "junit.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [PAIR]
    assert {"synchronise", "all_reduce"} <= {case.get("name") for case in suites[0].findall("testcase")}
    assert tagged(json.loads((folder / "session.json").read_text())["session"]["id"]) == []
    again = subprocess.run(
        [sys.executable, "-m", "reports", "rejudge", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.slow
def test_a_collective_that_drops_a_rank_turns_a_real_run_red(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    argv = ("suite/conformance", "--vendor", "cpu", "--topology", "1x2", "--session", str(folder))
    code, out = pytest_here(*argv, "--sabotage", "rank_dropped", timeout_s=400)
    assert code == 1, out
    assert "MISS  all_reduce" in out and "elements are wrong" in out
    assert "--topology 1x2 --sabotage rank_dropped" in out and "install -D" not in out
    result = json.loads((folder / PAIR / "result.json").read_text())
    failed = {check["name"] for check in result["checks"] if check["status"] == "fail"}
    assert failed == {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}
    junit = ElementTree.parse(folder / "junit.xml").getroot()
    assert {case.get("name") for case in junit.iter("testcase") if case.find("failure") is not None} == failed
