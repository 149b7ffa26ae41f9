"""Two chips that nobody built, and what `versus` says of their sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from suite.plan import Machine, Plan
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.reports2_toy import session_with
from tests.run_folders import tiny_plan, write_plan_folder

ONE = Topology(nnodes=1, nproc=1)
FAST, SLOW, MISSED = {"step_s": 0.05}, {"step_s": 0.1}, {"quality": (0.3, 0.4, 0.5)}


def chip(machine: str = "Z1", *, scope: str = "unknown", lr: float = 0.1, **over: Any) -> Plan:
    """A one-rank plan on a chip of that name."""
    fields: dict[str, Any] = {
        "topology": ONE, "vendor": "acme", "machine": machine, "id": f"toy-pytorch-acme-{machine}-mini-1x1",
        "machine_facts": Machine(name=machine, power_scope=scope),  # type: ignore[arg-type]
        "params": {"train_batch_size": 8, "gradient_accumulation_steps": 1, "lr": lr, "threads": 1, "compile": False},
        "plan_digest": f"p-{machine}-{lr}",
    }  # fmt: skip
    return tiny_plan(**(fields | over))


def session(folder: Path, *measured: tuple[Plan, Sequence[dict[str, Any]]]) -> str:
    """A session of these plans, each with its runs."""
    results = []
    for plan, runs in measured:
        planned = plan.model_copy(update={"repeat": len(runs), "seeds": tuple(range(1, len(runs) + 1))})
        results.append(judge_folder(write_plan_folder(folder / plan.id, planned, runs=runs)))
    return str(session_with(folder, results))


def compared(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    """What `versus … --format json` says."""
    assert main(["versus", *argv, "--format", "json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def line(report: dict[str, Any], metric: str, duel: int = 0) -> dict[str, Any]:
    """The row of a metric."""
    return next(one for one in report["duels"][duel]["lines"] if one["metric"] == metric)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one sentence of a wrong command line."""
    assert main(["versus", *argv]) == 4
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error
