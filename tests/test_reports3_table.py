"""Published tables: rows from the vendors' thresholds, figures of a session beside them, and a real session's end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.published import FORMATS, PublishedTable, as_markdown, as_text, grid, in_brief, published_tables
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.result import MetricResult, Result
from suite.topology import Topology
from tests.driver_toy import ROOT
from tests.line_toy import line_checkout
from tests.reports2_toy import result_with, session_with

CATALOG = load_catalog(ROOT / "suite")
NGC = [
    ("V100", "1x1", "fp32, 96", "158.611"), ("V100", "1x1", "fp16, 96", "639.16"),
    ("V100", "1x8", "fp32, 96", "1232.11, x7.77"), ("V100", "1x8", "fp16, 96", "5055.56, x7.91"),
    ("V100", "4x8", "fp32, 96", "3496.94, x22.05"), ("V100", "4x8", "fp16, 96", "16610.6, x25.99"),
    ("A100", "1x1", "tf32, 128", "873.714"), ("A100", "1x1", "fp16, 128", "1542.296"),
    ("A100", "1x8", "tf32, 128", "6846.036, x7.84"), ("A100", "1x8", "fp16, 128", "12075.63, x7.83"),
]  # fmt: skip
"""The two tables of the source, to seven digits."""


def measured(
    machine: str = "H200", topology: str = "1x2", *, rate: float | None = 4321.5, speedup: float | None = 1.93,
    precision: str = "fp16", batch: int = 96, outcome: Outcome | None = None, **over: Any,
) -> Result:  # fmt: skip
    """A made-up BERT result of the preset ngc_amp_bs96."""
    metrics = {
        name: MetricResult(value=value, unit=unit, values=(value,))
        for name, value, unit in (("throughput_train", rate, "sequence/s"), ("speedup", speedup, "x"))
        if value is not None
    }
    plan: dict[str, Any] = {
        "model": "bert", "framework": "pytorch", "vendor": "nvidia", "machine": machine, "mode": "throughput",
        "preset": f"ngc_amp_bs{batch}", "topology": Topology.parse(topology),
        "id": f"bert-pytorch-nvidia-{machine}-ngc_amp_bs{batch}-throughput-{topology}",
        "params": {"precision": precision, "train_batch_size": batch},
    }  # fmt: skip
    return result_with("bert", plan=plan | over, metrics=metrics, outcome=outcome or Outcome(status="passed"))


def cells(table: PublishedTable) -> dict[tuple[str, str, str, str], str]:
    """(machine, topology, origin, column) -> what stands there."""
    header, rows = grid(table)
    return {(row[0], row[1], row[3], name): cell for row in rows for name, cell in zip(header[4:], row[4:])}


def test_every_published_figure_stands_beside_the_card_that_is_here() -> None:
    (table,) = published_tables([measured()], CATALOG)
    found = cells(table)
    for machine, topology, column, figure in NGC:
        assert found[machine, topology, "published", column] == figure
    assert sum(cell != "-" for cell in found.values()) == len(NGC) + 1
    assert found["H200", "1x2", "measured", "fp16, 96"] == "4321.5, x1.93"
    assert [row[2] for row in grid(table)[1] if row[0] == "V100"] == ["1", "8", "32"], "cards, as numbers"
    assert all("1.11.0a0+b6df043" in figure.source for figure in table.figures if figure.origin == "published")


def test_a_measured_row_follows_the_published_one_of_its_card() -> None:
    (table,) = published_tables([measured("A100", "1x8", batch=128)], CATALOG)
    places = [tuple(row[:4]) for row in grid(table)[1]]
    assert places.index(("A100", "1x8", "8", "measured")) == places.index(("A100", "1x8", "8", "published")) + 1


def test_what_has_no_figure_says_why_and_what_never_started_is_left_out() -> None:
    crash = Outcome(status="error", category="crash", reason="rank 0 was killed by SIGKILL (signal 9)")
    absent = Outcome(status="not_started", category="unavailable", reason="no such card")
    results = [measured(rate=None, speedup=None, outcome=crash), measured("A100", rate=None, outcome=absent)]
    (table,) = published_tables(results, CATALOG)
    assert cells(table)["H200", "1x2", "measured", "fp16, 96"] == "-"
    text = as_text([table])
    assert "error: crash: rank 0 was killed" in text and "no such card" not in text
    assert "A100-SXM4-40GB" in text and "A100-SXM4-40GB" not in "\n".join(in_brief([table])), "sources on demand"


@pytest.mark.parametrize("other", [{"mode": "converge"}, {"preset": "base_s128"}, {"model": "glm"}])
def test_a_session_without_a_plan_of_it_has_no_table(other: dict[str, Any]) -> None:
    assert published_tables([measured(**other)], CATALOG) == ()


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_the_command_writes_every_format(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    session = session_with(tmp_path / "s", [measured()])
    assert main(["table", str(session), "--format", form]) == 0
    out = capsys.readouterr().out
    assert "158.611" in out and "4321.5" in out
    if form == "json":
        (table,) = json.loads(out)
        assert {figure["origin"] for figure in table["figures"]} == {"published", "measured"}


def test_a_session_of_other_things_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = session_with(tmp_path / "s", [result_with()])
    assert main(["table", str(session)]) == 4
    assert "no plan of it belongs to a published table" in capsys.readouterr().err


def test_hostile_text_stays_text() -> None:
    mean = Outcome(status="error", category="crash", reason="<script>@all</script> \x1b[31m | `x` [a](http://b)")
    tables = published_tables([measured(rate=None, speedup=None, outcome=mean)], CATALOG)
    assert "\x1b" not in as_text(tables)
    assert "<script>" not in FORMATS["html"](tables)
    (line,) = [line for line in as_markdown(tables).splitlines() if "@all" in line]
    assert line.startswith("- `") or line.startswith("- ``"), "inside a code span"


TABLE = """
[table.planes]
title = "Planes of the world"
preset = "mi*"
columns = ["train_batch_size"]
"""
PUBLISHED = """
[preset.mini.threshold.throughput]
value = 1.5
source = "the almanac of planes"
[preset.mini.threshold.speedup]
value = 1.75
source = "the same almanac"
"""


def test_a_real_session_ends_with_its_table(tmp_path: Path) -> None:
    """Any case names a table of its own; nothing about it is in code."""
    checkout = line_checkout(tmp_path / "a clone", more=TABLE, params={"throughput_steps": 40})
    checkout.write(
        "suite/vendors/cpu/line/pytorch/config_hostx1x1.toml", PUBLISHED.partition("[preset.mini.threshold.s")[0]
    )
    checkout.write("suite/vendors/cpu/line/pytorch/config_hostx1x2.toml", PUBLISHED)
    done = checkout.pytest("suite", "--vendor", "cpu", "--topology", "1x1", "--mode", "throughput", "--session", "s")
    assert done.code in (0, 5), done.out  # 5: a host too busy for a steady rate
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "Planes of the world" in lines and "machine topology cards figures 16" in lines
    assert "host 1x1 1 published 1.5" in lines and "host 1x2 2 published 1.5, x1.75" in lines
    (row,) = [line for line in lines if line.startswith("host 1x1 1 measured")]
    result = json.loads((checkout.root / "s" / "session.json").read_text())["results"][0]
    rate = result["metrics"].get("throughput_train")
    assert row.split()[-1] == ("-" if rate is None else f"{rate['value']:.5g}")
    assert result["metrics"].get("speedup") is None, "1x1 has no base"


def test_a_table_that_cannot_be_is_refused(tmp_path: Path) -> None:
    result = result_with("line", plan={"mode": "throughput"})
    for broken, sentence in (
        (TABLE.replace("train_batch_size", "wings"), "columns names 'wings', which is no parameter"),
        (TABLE.replace("mi*", "maxi"), "preset = 'maxi' fits no preset"),
    ):
        root = tmp_path / broken.partition("preset")[2][:8].strip(' ="*\n')
        line_checkout(root, more=broken)
        with pytest.raises(UsageProblem, match=sentence):
            published_tables([result], load_catalog(root / "suite"))
