"""A pytest plugin that stands in for training and judging: plans end as the environment variable TOY_BEHAVIOUR says."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite.errors import UsageProblem
from suite.measurement import Point
from suite.outcome import Outcome
from suite.plan import Plan
from suite.result import CheckResult, MetricResult, Result
from suite.session import SESSION

CLEANING_S = 1.5
LONGEST_S = 60.0


@dataclass
class Runs:
    """What training hands to the judge."""

    plan: Plan
    folder: Path


class Trainer:
    """Writes down how the plan ended, without having run it."""

    def __init__(self, **given: Any) -> None:
        self.session, self.progress, self.announce = given["session"], given["progress"], given["announce"]
        told = {"site": given["site"].model_dump(mode="json"), "baselines": [str(path) for path in given["baselines"]]}
        (self.session.folder / "given.json").write_text(json.dumps(told))

    def __call__(self, plan: Plan) -> Runs:
        folder = self.session.folder / plan.id
        folder.mkdir()
        self.announce({"kind": "plan", "id": plan.id, "folder": str(folder), "plan": plan.model_dump(mode="json")})
        plan.write(folder / "plan.json")
        behaviour = behaviour_of(plan)
        if behaviour == "usage":
            raise UsageProblem("the toy cannot be trained like this; say otherwise")
        if behaviour == "boom":
            raise RuntimeError("the trainer broke")
        self.progress.start(plan, "r1")
        if behaviour == "sleep":
            self.sleep(plan, folder)
        self.progress.event(0, {"event": "eval_result", "step": 40, "samples": 320, "metrics": {"accuracy": 0.8125}})
        status, _, category = behaviour.partition(":")
        reason = f"the toy is {status} \x1b[31m" if status != "passed" else ""
        outcome = Outcome(status=status, category=category, reason=reason)  # type: ignore[arg-type]
        outcome.write(folder / "outcome.json")
        self.progress.end(outcome)
        return Runs(plan, folder)

    def sleep(self, plan: Plan, folder: Path) -> None:
        """Wait to be interrupted, and take a while to clean up."""
        (folder / "asleep").touch()
        try:
            deadline = time.monotonic() + LONGEST_S
            while time.monotonic() < deadline:
                time.sleep(0.02)
        except KeyboardInterrupt:
            outcome = Outcome(status="error", category="interrupted", reason="told to stop")
            self.announce({"kind": "outcome", "id": plan.id, "outcome": outcome.model_dump(mode="json")})
            time.sleep(CLEANING_S)
            (folder / "cleaned").touch()
            raise


def behaviour_of(plan: Plan) -> str:
    """`passed`, unless the environment says otherwise of a part of the id."""
    behaviours: Mapping[str, str] = json.loads(os.environ.get("TOY_BEHAVIOUR", "{}"))
    return next((behaviour for part, behaviour in behaviours.items() if part in plan.id), "passed")


def judge_folder(folder: Path, *, baselines: Sequence[Path] = ()) -> Result:
    """A Result with the outcome that was written down."""
    plan = Plan.read(folder / "plan.json")
    settled = folder / "harness.jsonl"
    if settled.is_file():
        outcome = Outcome.model_validate(json.loads(settled.read_text())["outcome"])
    else:
        outcome = Outcome.read(folder / "outcome.json")
    check = CheckResult(
        name="quality", metric="accuracy", value=0.8125, op=">=", threshold=0.7, unit="fraction", required=True,
        status="pass" if outcome.status == "passed" else "fail",
    )  # fmt: skip
    return Result(
        id=plan.id, model=plan.model, framework=plan.framework, vendor=plan.vendor, machine=plan.machine,
        topology=plan.topology, preset=plan.preset, mode=plan.mode, division=plan.division, evidence=plan.evidence,
        verified=plan.verified, seeds=plan.seeds, outcome=outcome, checks=(check,),
        metrics={"accuracy": MetricResult(value=0.8125, unit="fraction", values=(0.8125,))}, ledger={},
        curve=(Point(step=40, samples=320, t=1.0, metric="accuracy", value=0.8125),), runs=(), params=plan.params,
        origins=plan.origins, case_digest=plan.case_digest, measurement_version=plan.measurement_version,
        plan_digest=plan.plan_digest, data_digest=plan.data_digest, environment={}, comparability_key="k", base=None,
        artifacts=(),
    )  # fmt: skip


def failure_text(result: Result, folder: Path, rerun: str) -> str:
    """The reason and the command to run it again."""
    return f"{result.id} {result.outcome.status}: {result.outcome.category}\nrerun: {rerun}"


def pytest_configure(config: pytest.Config) -> None:
    """Stand in for the rooms that train and judge."""
    for name, part in (
        ("fixtures.training", Trainer), ("suite.verdict", judge_folder), ("suite.failure_text", failure_text),
    ):  # fmt: skip
        module = ModuleType(name)
        setattr(module, part.__name__, part)
        sys.modules[name] = module


class Recorder:
    """Keeps what is announced, process by process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_trainmark_record(self, record: dict[str, Any]) -> None:
        """Append to a file of this process."""
        session = self.config.stash[SESSION]
        with (session.folder / f"announced-{session.worker}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Listen from here on, where there is a session of ours."""
    if SESSION in session.config.stash:
        session.config.pluginmanager.register(Recorder(session.config))
