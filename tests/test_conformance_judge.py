"""What the harness makes of the ranks' findings, from the run folder alone; and the list of capabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.run_folder import run_spec
from suite.capabilities import CAPABILITIES, read_capabilities, write_capabilities
from suite.catalog import load_catalog
from suite.conformance.checks import CHECKS
from suite.conformance_findings import is_conformance
from suite.conformance_plan import conformance_plans, default_topologies
from suite.errors import UsageProblem
from suite.result import CheckResult, Result
from suite.topology import Topology
from suite.verdict import judge_folder
from tests.conformance_toy import ROOT, plan_of, write_monitor, write_run

BUSY = {"utilisation": 95.0, "power_w": 300.0}
IDLE = {"utilisation": 2.0, "power_w": 60.0}


def check_of(result: Result, name: str) -> CheckResult:
    return next(check for check in result.checks if check.name == name)


def judged(folder: Path, rest: dict[str, float] = IDLE, load: dict[str, float] = BUSY, **over: Any) -> Result:
    """The verdict on a chip of our own, with what its monitor shows."""
    run = write_run(folder, plan_of(shared=False), over=over.get("over"))
    write_monitor(run, rest, load)
    return judge_folder(folder)


# Plans


def test_a_plan_asks_for_what_its_topology_can_show() -> None:
    alone, pair, nodes = ({check.name for check in plan_of(topology).checks} for topology in ("1x1", "1x2", "2x1"))
    assert pair - alone == {
        *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "backend", "fast_path"),
    }
    assert pair - nodes == {"fast_path"}
    assert pair == {asked.name for asked in CHECKS}


def test_thresholds_come_with_their_reason_and_shared_devices_are_asked_less() -> None:
    plan = plan_of("1x2")
    assert is_conformance(plan) and plan.division == "open" and plan.id == "conformance-pytorch-cpu-host-1x2"
    assert all(check.source and check.threshold is not None for check in plan.checks)
    required = {check.name for check in plan.checks if check.required}
    assert {"synchronise", "dtype_fp32", "seeds", "all_reduce", "backend"} <= required
    assert required.isdisjoint({"monitor_power", "memory_returned", "fast_path", "event_timing", "dtype_bf16"})


def test_only_the_first_topology_looks_for_capabilities_and_a_sabotage_for_none() -> None:
    catalog = load_catalog(ROOT / "suite")
    topologies = [Topology.parse(text) for text in ("1x2", "1x1")]
    plans = conformance_plans(catalog, catalog.vendor("cpu"), "host", topologies)
    assert [(str(plan.topology), plan.params["probes"]) for plan in plans] == [("1x1", True), ("1x2", False)]
    broken = conformance_plans(catalog, catalog.vendor("cpu"), "host", topologies, sabotage="seed_ignored")
    assert not any(plan.params["probes"] for plan in broken)
    assert {plan.plan_digest for plan in plans}.isdisjoint({plan.plan_digest for plan in broken})


def test_two_ranks_are_asked_where_there_are_two_devices() -> None:
    told = [[str(topology) for topology in default_topologies(devices)] for devices in (1, 2, 8, None)]
    assert told == [["1x1"], ["1x1", "1x2"], ["1x1", "1x2"], ["1x1", "1x2"]]


def test_every_shipped_vendor_can_be_asked() -> None:
    catalog = load_catalog(ROOT / "suite")
    for vendor in catalog.vendors.values():
        machine = next(iter(vendor.machines))
        assert len(conformance_plans(catalog, vendor, machine, default_topologies(2))) == 2, vendor.name


# Verdicts


def test_a_chip_without_fault_passes_and_its_capabilities_are_kept(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert result.outcome.status == "passed", result.outcome
    assert result.environment["capabilities"] == {"bf16": True, "compile": False, "all_to_all": True}
    assert result.environment["capability_remarks"] == {"compile": "no compiler"}
    assert check_of(result, "monitor_power").value == 300.0 and check_of(result, "monitor_utilisation").value == 93.0


@pytest.mark.parametrize(
    ("rank", "check", "value"),
    [
        (1, "all_reduce", 0.5),
        (0, "synchronise", 0.99),
        (1, "dtype_fp32", 3e-4),
        (1, "dtype_bf16", 0.5),
        (0, "seeds", 3.0),
        (1, "memory_returned", 256.0),
        (0, "event_timing", 0.4),
        (1, "backend", 1.0),
        (1, "fast_path", 0.2),
        (0, "timers", 1.0),
        (1, "devices", 1.0),
    ],
)
def test_one_rank_that_is_wrong_makes_the_chip_red(tmp_path: Path, rank: int, check: str, value: float) -> None:
    result = judged(tmp_path, over={(rank, check): {"value": value, "remark": "look here"}})
    assert (result.outcome.status, result.outcome.category) == ("failed", "check")
    found = check_of(result, check)
    assert found.status == "fail" and found.value == value
    assert f"rank {rank}: look here; see " in found.reason or "set event_timing" in found.reason
    assert sum(each.status == "fail" for each in result.checks) == 1


def test_what_a_chip_cannot_show_is_open_and_required_ones_are_never_a_pass(tmp_path: Path) -> None:
    nothing = {"value": None, "remark": "no events"}
    result = judged(tmp_path, over={(1, "synchronise"): nothing})
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "not_observable")
    assert check_of(result, "synchronise").reason == "not_observable: rank 1: no events"

    plan = plan_of("1x2")
    write_run(tmp_path / "host", plan, over={(0, "event_timing"): nothing, (0, "fast_path"): nothing})
    assert judge_folder(tmp_path / "host").outcome.status == "passed"


def test_all_to_all_that_is_not_offered_is_a_capability_that_lacks(tmp_path: Path) -> None:
    plan = plan_of("1x2")
    write_run(tmp_path, plan, over={(0, "all_to_all"): {"value": None, "remark": "not offered: no"}})
    result = judge_folder(tmp_path)
    assert result.outcome.status == "passed" and result.environment["capabilities"]["all_to_all"] is False  # type: ignore[index]
    assert "not offered" in result.environment["capability_remarks"]["all_to_all"]  # type: ignore[index]


@pytest.mark.parametrize(("rank", "check"), [(0, "seeds"), (1, "all_reduce"), (0, "monitor")])
def test_a_finding_that_is_missing_is_no_pass(tmp_path: Path, rank: int, check: str) -> None:
    result = judged(tmp_path, over={(rank, check): None})
    assert (result.outcome.status, result.outcome.category) == ("failed", "invalid_measurement")
    assert "no finding about" in result.outcome.reason


@pytest.mark.parametrize(
    ("old", "new", "category"),
    [
        ('"status": "success"', '"status": "aborted"', "invalid_measurement"),
        ('"value": 0.0', '"value": -1.0', "invalid_measurement"),
        ('"value": 0.0', '"value": "inf"', "invalid_measurement"),
        ('"has": true', '"has": "yes"', "invalid_measurement"),
        ('"name": "bf16"', '"name": "bf17"', "invalid_measurement"),
        ('"rest": [10.0, 20.0]', '"rest": [10.0]', "invalid_measurement"),
        ('"event": "finding"', '"event": "rumour"', "invalid_measurement"),
    ],
)
def test_streams_that_cannot_be_trusted_are_told(tmp_path: Path, old: str, new: str, category: str) -> None:
    run = write_run(tmp_path, plan_of(shared=False))
    write_monitor(run, IDLE, BUSY)
    stream = run / "events" / "rank0.jsonl"
    text = stream.read_text()
    assert old in text
    stream.write_text(text.replace(old, new, 1))
    outcome = judge_folder(tmp_path).outcome
    assert (outcome.status, outcome.category) == ("failed", category), outcome


def test_a_lost_run_is_an_error_and_its_checks_are_not_measured(tmp_path: Path) -> None:
    run = write_run(tmp_path, plan_of("1x2"))
    ended = {"event": "ended", "t": 1.0, "status": "error", "category": "hang", "reason": "rank 1 hangs", "rank": 1}
    (run / "harness.jsonl").write_text(json.dumps(ended) + "\n")
    result = judge_folder(tmp_path)
    assert (result.outcome.status, result.outcome.category) == ("error", "hang")
    assert {check.reason.partition(":")[0] for check in result.checks} == {"not_measured"}
    (run / "harness.jsonl").write_text("")
    assert judge_folder(tmp_path).outcome.category == "worker_lost"


def test_a_rank_that_left_badly_is_a_crash(tmp_path: Path) -> None:
    run = write_run(tmp_path, plan_of("1x2"))
    (run / "exits" / "rank1.json").write_text(json.dumps({"rank": 1, "returncode": 139, "signal": 11}))
    outcome = judge_folder(tmp_path).outcome
    assert (outcome.category, outcome.rank) == ("crash", 1) and "signal 11" in outcome.reason


# The monitor


def test_a_monitor_that_shows_no_power_under_load_is_red(tmp_path: Path) -> None:
    result = judged(tmp_path, load={"utilisation": 95.0, "power_w": 0.0})
    assert check_of(result, "monitor_power").status == "fail" and result.outcome.status == "failed"


def test_a_monitor_without_power_leaves_a_chip_open(tmp_path: Path) -> None:
    result = judged(tmp_path, rest={"utilisation": 2.0}, load={"utilisation": 95.0})
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "not_observable")
    assert "no power_w under load" in check_of(result, "monitor_power").reason


def test_a_utilisation_that_stands_still_is_red(tmp_path: Path) -> None:
    result = judged(tmp_path, load={"utilisation": 3.0, "power_w": 300.0})
    found = check_of(result, "monitor_utilisation")
    assert found.status == "fail" and "D1: 2 to 3 %" in found.reason


def test_each_node_is_seen_by_its_own_clock(tmp_path: Path) -> None:
    plan = plan_of("2x1", shared=False)
    run = write_run(tmp_path, plan)
    stream = run / "events" / "rank1.jsonl"
    stream.write_text(stream.read_text().replace('"t_wall": 1000.0', '"t_wall": 1040.0'))
    write_monitor(run, IDLE, BUSY, devices=1)
    write_monitor(run, IDLE, BUSY, devices=1, name="monitor-node1.jsonl", ahead_s=40.0)
    result = judge_folder(tmp_path)
    assert result.outcome.status == "passed", result.outcome
    assert check_of(result, "monitor_utilisation").value == 93.0
    write_monitor(run, IDLE, IDLE, devices=1, name="monitor-node1.jsonl", ahead_s=40.0)
    assert check_of(judge_folder(tmp_path), "monitor_utilisation").status == "fail"


def test_a_device_that_others_keep_busy_says_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, rest={"utilisation": 99.0, "power_w": 300.0})
    assert check_of(result, "monitor_utilisation").reason.startswith("not_observable: it was busy at rest")


@pytest.mark.parametrize(("others", "spent", "status"), [(5.0, 1.0, "pass"), (5.0, 0.0, "fail"), (97.0, 1.0, "")])
def test_of_a_host_our_own_processes_count(tmp_path: Path, others: float, spent: float, status: str) -> None:
    run = write_run(tmp_path, plan_of("1x1"))
    lines, total = ["{torn\n"], 1.0
    for second in range(10, 31):
        total += spent if second > 20 else 0.0
        host = {"cpu_percent": others, "tree_cpu_s": total}
        lines.append(json.dumps({"t_wall": 1000.0 + second, "devices": [], "host": host}) + "\n")
    (run / "monitor.jsonl").write_text("".join(lines))
    found = check_of(judge_folder(tmp_path), "monitor_utilisation")
    assert found.status == (status or "inconclusive")
    assert status != "pass" or found.value == pytest.approx(100.0, abs=1.0)


# Capabilities


def test_capabilities_are_written_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "capabilities.toml"
    found = {"compile": False, "bf16": True}
    write_capabilities(path, found, {"compile": "no\ncompiler # here", "bf16": ""}, 'a "quoted" session')
    assert read_capabilities(path, "here") == found
    assert path.read_text().startswith('source = "a \\"quoted\\" session"\n')
    assert "compile = false  # no compiler # here\n" in path.read_text()
    assert read_capabilities(tmp_path / "absent.toml", "here") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("compil = true", "unknown key 'compil' (did you mean 'compile'?)"),
        ("compile = 1", "compile = 1: a capability is true or false"),
        ("compile = ", "capabilities.toml:1: not valid TOML"),
    ],
)
def test_a_list_that_was_edited_badly_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "capabilities.toml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as problem:
        read_capabilities(path, "baselines/acme/capabilities.toml")
    assert told in str(problem.value)


def test_an_adopted_list_reaches_the_ranks(tmp_path: Path) -> None:
    plan = plan_of("1x1")
    (tmp_path / "cpu").mkdir()
    write_capabilities(tmp_path / "cpu" / "capabilities.toml", {"compile": False}, {}, "a session")
    spec = run_spec(plan, run="x", n=1, attempt=1, seed=1, folder=tmp_path, data_dir=None, baselines=tmp_path)
    assert spec["capabilities"] == {"compile": False}


def test_capabilities_that_the_driver_asks_for_have_names() -> None:
    import re

    asked = set()
    for path in (ROOT / "suite" / "drivers" / "pytorch").glob("*.py"):
        asked |= set(re.findall(r'\bcan\("(\w+)"\)', path.read_text()))
    assert asked and asked <= set(CAPABILITIES)
