"""A project without training: plans announced by hand, to see what the reports make of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from suite.measurement import Point
from suite.outcome import Outcome
from suite.plan import Plan
from suite.result import Artifact, Base, CheckResult, MetricResult, Result, RunResult
from suite.topology import Topology
from tests.run_folders import tiny_plan
from tests.user_toy import LIGHT
from tests.warm_python import Finished, pytest_python

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = '''
import os, signal, time
from pathlib import Path
import pytest
from suite import hookspecs
from suite.session import SESSION, Session
from tests.reports_toy import toy_plans

pytest_plugins = ("reports.plugin",)

def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(hookspecs)

def pytest_configure(config):
    if "TOY_SESSION" not in os.environ:
        return
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None and hasattr(signal, "SIGTERM"):
        def interrupt(number, frame):
            raise KeyboardInterrupt(f"received {number}")
        signal.signal(signal.SIGTERM, interrupt)
    folder = Path(os.environ["TOY_SESSION"])
    folder.mkdir(parents=True, exist_ok=True)
    config.stash[SESSION] = Session(
        id="20260131T120000Z-4f2a", folder=folder, started="2026-01-31T12:00:00Z", vendor="cpu", machine="host",
        worker=workerinput["workerid"] if workerinput else "main")
    if workerinput is None:
        config.hook.pytest_trainmark_record(record={"kind": "session", "id": "20260131T120000Z-4f2a", "started":
            "2026-01-31T12:00:00Z", "command": ["pytest", "toy"], "git": {"commit": "abc", "dirty": False},
            "versions": {"python": "3.11"}, "ci": {}, "folder": str(folder)})

def pytest_generate_tests(metafunc):
    if "plan" in metafunc.fixturenames:
        metafunc.parametrize("plan", [pytest.param(plan, id=plan.id) for plan in toy_plans()])

@pytest.fixture
def slow_end():
    """Teardown that takes until the watcher says `go`, a minute at most."""
    yield
    until = time.monotonic() + 60
    while "TOY_GO" in os.environ and not Path(os.environ["TOY_GO"]).exists() and time.monotonic() < until:
        time.sleep(0.02)
'''

TEST = """
from tests.reports_toy import play

def test_toy(plan, request, slow_end):
    play(plan, request.config)
"""

INI = f"""[pytest]
pythonpath = {str(ROOT).replace(" ", chr(92) + " ")}
addopts = --import-mode=importlib -p no:cacheprovider -p no:benchmark
"""


def toy_plan(name: str, **over: Any) -> Plan:
    """A one-rank plan called `<name>-pytorch-cpu-host-mini-1x1`."""
    topology = Topology(nnodes=1, nproc=1)
    over = {"model": name, "id": f"{name}-pytorch-cpu-host-mini-1x1", "topology": topology, **over}
    return tiny_plan(**over)


def toy_plans() -> list[Plan]:
    """The plans of this process's project, in the order of their script."""
    return [toy_plan(name) for name in json.loads(os.environ["TOY_SCRIPT"])]


def toy_result(plan: Plan, outcome: Outcome | None = None, **over: Any) -> Result:
    """A judged `plan` with every part of a Result filled in; a check fails where the outcome's category says so."""
    outcome = outcome or Outcome(status="passed")
    checks = []
    for check in plan.checks:
        missed = check.name == outcome.category
        values = {"quality": 0.5 if missed else 0.81, "time_to_train": 588.25, "throughput": 42.4, "ledger": 0.0}
        status = "fail" if missed else "inconclusive" if check.threshold is None else "pass"
        reason = {"fail": "0.5 is below 0.7", "inconclusive": "no_threshold: nobody declared one", "pass": ""}[status]
        checks.append(
            CheckResult(
                name=check.name, metric=check.metric, value=values.get(check.name, 1.0), op=check.op,
                threshold=check.threshold, unit=check.unit, required=check.required, status=status, reason=reason,
                source=check.source,
            )
        )  # fmt: skip
    metrics = {
        "time_to_train_s": MetricResult(value=588.25, unit="s", values=(588.25,)),
        "throughput_train": MetricResult(value=42.4, unit="sample/s", values=(42.4,)),
        "mfu": MetricResult(value=0.347, unit="fraction", values=(0.347,)),
    }
    run = RunResult(
        n=1, seed=plan.seeds[0], folder="r1", outcome=Outcome(status="passed"), metrics={"mfu": 0.347},
        ledger={"train": 12.0, "wall_s": 12.3456, "unaccounted_s": 0.1}, attempts=1, environment={"host": "h"},
        curve=(Point(step=10, samples=80, t=1.5, metric="accuracy", value=0.81),),
    )  # fmt: skip
    base = Base(
        id="b", plan_digest="p", metric="throughput_train", value=5.5, values=(5.5,), unit="sample/s", folder="base"
    )
    facts = {name: getattr(plan, name) for name in Result.model_fields if hasattr(plan, name) and name != "checks"}
    fields: dict[str, Any] = {
        **facts, "schema_version": 1, "outcome": outcome, "checks": tuple(checks), "metrics": metrics,
        "ledger": run.ledger, "curve": run.curve, "runs": (run,), "environment": {"host": "h"},
        "comparability_key": "k", "base": base, "artifacts": (Artifact(path="r1/run.json", bytes=3, sha256="00"),),
    }  # fmt: skip
    return Result(**(fields | over))


def play(plan: Plan, config: Any) -> None:
    """Do with `plan` what the script says, announcing it as fixtures and judge would."""
    import signal

    import pytest

    def tell(**record: object) -> None:
        config.hook.pytest_trainmark_record(record=record)

    act = json.loads(os.environ["TOY_SCRIPT"])[plan.model]
    if act == "break":
        raise RuntimeError("the fixture broke \x1b[31m")
    tell(kind="plan", id=plan.id, folder=plan.id, plan=plan.model_dump(mode="json"))
    folder = Path(os.environ["TOY_SESSION"]) / plan.id
    folder.mkdir(exist_ok=True)
    plan.write(folder / "plan.json")
    tell(kind="phase", id=plan.id, n=1, name="launch", t_wall=1.0)
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "interrupt":
        os.kill(os.getpid(), signal.SIGTERM)
    tell(kind="attempt", id=plan.id, n=1, attempt=1, folder="r1", outcome={"status": "passed"})
    if act == "unavailable":
        outcome = Outcome(status="not_started", category="unavailable", reason="8 devices wanted, 1 here")
        tell(kind="outcome", id=plan.id, outcome=outcome.model_dump(mode="json"))
        pytest.skip(outcome.reason)
    outcome = Outcome(status="failed", category="quality", reason="0.5 < 0.7") if act == "miss" else None
    result = toy_result(plan, outcome)
    tell(kind="verdict", id=plan.id, folder=plan.id, result=result.model_dump(mode="json"))
    if act == "miss":
        pytest.fail("missed 1 of 4 targets", pytrace=False)
    if act == "assert":
        raise AssertionError("the case's own assert")


def write_project(folder: Path) -> Path:
    """The project's files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_toy.py").write_text(TEST)
    (folder / "pytest.ini").write_text(INI)
    return folder


def toy_environment(session: Path | None, script: Mapping[str, str], **over: str) -> dict[str, str]:
    """The environment of the project's pytest."""
    environment = {**os.environ, "TOY_SCRIPT": json.dumps(script), "PYTHONPATH": str(ROOT), "COLUMNS": "200", **over}
    environment.pop("TOY_SESSION", None)
    environment |= LIGHT
    return environment if session is None else {**environment, "TOY_SESSION": str(session)}


def run_toy(project: Path, session: Path | None, script: Mapping[str, str], *arguments: str, **over: str) -> Finished:
    """pytest over the project in a process of its own."""
    environment = toy_environment(session, script, **over)
    return pytest_python().run(["-m", "pytest", *arguments], env=environment, cwd=project, timeout_s=120)


def run_reports(*arguments: str | Path, cwd: Path = ROOT, **over: str) -> Finished:
    """`python -m reports` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **over}
    return pytest_python().run(["-m", "reports", *map(str, arguments)], env=environment, cwd=cwd, timeout_s=120)


def session_of(folder: Path) -> dict[str, Any]:
    """session.json in `folder`."""
    data = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


def outcomes_of(folder: Path) -> dict[str, str]:
    """Model -> `status: category` of each result in `folder`'s session.json."""
    found = {}
    for result in session_of(folder)["results"]:
        outcome = result["outcome"]
        found[result["model"]] = ": ".join(part for part in (outcome["status"], outcome["category"]) if part)
    return found


def junit_shape(path: Path) -> list[tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]]:
    """Per suite of a junit.xml: its name, (testcase, child tags with messages), and its properties: all but times."""
    shape = []
    for suite in ElementTree.parse(path).getroot():
        cases = [
            (case.get("name", ""), " ".join(f"{child.tag}={child.get('message')}" for child in case))
            for case in suite.iter("testcase")
        ]
        properties = [(item.get("name", ""), item.get("value", "")) for item in suite.iter("property")]
        shape.append((suite.get("name", ""), cases, properties))
    return shape
