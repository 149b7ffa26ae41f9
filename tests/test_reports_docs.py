"""docs/results.md says everything that a result can say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.json_report import Git, SessionFacts, SessionReport
from suite.measurement import Point
from suite.metrics import METRICS
from suite.outcome import CATEGORIES, Outcome
from suite.record import Record
from suite.result import Artifact, Base, CheckResult, MetricResult, Result, RunResult
from suite.topology import Topology

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
RECORDS: tuple[type[Record], ...] = (
    Result, RunResult, CheckResult, MetricResult, Base, Artifact, Outcome, Point, Topology,
    SessionReport, SessionFacts, Git,
)  # fmt: skip


def section(title: str) -> str:
    """The text under the heading `title`."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("status", "categories"), CATEGORIES.items(), ids=str)
def test_every_outcome_is_explained(status: str, categories: tuple[str, ...]) -> None:
    rows = section("Outcomes").partition(f"| `{status}` |")[2]
    assert rows, f"explain the status {status}"
    own = re.split(r"\n\| `", rows)[0]
    assert [name for name in categories if f" `{name}` |" not in own] == []


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_is_explained(name: str) -> None:
    assert f"`{name}`" in section("Metrics"), f"explain the metric {name} in docs/results.md"


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_key_is_explained(kind: type[Record]) -> None:
    text = section("result.json") + section("session.json")
    assert [key for key in kind.model_fields if not re.search(rf"[`{{ .]{key}[`}},: ]", text)] == []


def test_every_exit_code_is_explained() -> None:
    codes = section("Outcomes").partition("Exit codes")[2]
    assert [code for code in range(6) if not re.search(rf"\b{code} \w", codes)] == []
