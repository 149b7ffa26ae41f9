"""Judging a plan's folder: one outcome, the same checks whatever happened, the same bytes twice, never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.errors import UsageProblem
from suite.outcome import CATEGORIES
from suite.plan import Check, Plan
from suite.result import CheckResult, Result
from suite.verdict import judge_folder
from tests.run_folders import FAULTS, read_lines, tiny_plan, with_base, write_lines, write_plan_folder, write_run


def judged(folder: Path, plan: Plan | None = None, **arguments: Any) -> Result:
    return judge_folder(write_plan_folder(folder / "plan", plan or tiny_plan(), **arguments))


def check(result: Result, name: str) -> CheckResult:
    return next(found for found in result.checks if found.name == name)


def declaring(name: str, metric: str, op: str, value: float, **over: Any) -> Plan:
    """A tiny plan with one more required check."""
    plan = tiny_plan(**over)
    added = Check.model_validate(
        {"name": name, "metric": metric, "op": op, "threshold": value, "required": True, "source": "a test"}
    )
    kept = tuple(known for known in plan.checks if known.name != name)
    return plan.model_copy(update={"checks": (*kept, added)})


def test_good_run_passes(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert (result.outcome.status, result.outcome.reason) == ("passed", "")
    assert {found.name: found.status for found in result.checks} == {
        "quality": "pass",
        "time_to_train": "pass",
        "throughput": "inconclusive",
        "ranks_in_sync": "pass",
        "ledger": "pass",
    }
    throughput = check(result, "throughput")
    assert throughput.value == pytest.approx(160, rel=0.01)
    assert throughput.reason == "no_threshold: nobody has declared one"
    assert result.metrics["throughput_train"].unit == "image/s"
    assert (result.metrics["accuracy"].value, result.curve[-1].value) == (0.75, 0.75)
    assert result.comparability_key


OUTCOMES = {
    "missing_rank": ("failed", "invalid_measurement"),
    "no_header": ("failed", "invalid_measurement"),
    "no_run_stop": ("failed", "invalid_measurement"),
    "torn_line": ("passed", ""),
    "nonzero_exit": ("error", "crash"),
    "aborted": ("error", "crash"),
    "environment": ("error", "environment"),
    "nan_loss": ("failed", "nonfinite_loss"),
    "nan_quality": ("failed", "quality"),
    "diverged": ("failed", "ranks_diverged"),
    "no_checksum": ("inconclusive", "not_observable"),
    "other_windows": ("failed", "invalid_measurement"),
    "hidden_time": ("failed", "invalid_measurement"),
    "forged_clock": ("failed", "invalid_measurement"),
    "slow_start": ("passed", ""),
    "drift": ("passed", ""),
    "wild_steps": ("failed", "time_to_train"),
    "short_batch": ("failed", "invalid_measurement"),
    "crash": ("error", "crash"),
    "no_ended": ("error", "worker_lost"),
}


def test_every_fault_has_its_outcome() -> None:
    assert OUTCOMES.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_outcome_of_each_fault_with_the_same_checks(tmp_path: Path, fault: str) -> None:
    result = judged(tmp_path, runs=[{"faults": [fault], "steps": 240}])
    assert (result.outcome.status, result.outcome.category) == OUTCOMES[fault]
    assert [found.name for found in result.checks] == [planned.name for planned in tiny_plan().checks]
    assert result.outcome.category in (CATEGORIES[result.outcome.status] or ("",))


def test_lost_run_is_not_measured(tmp_path: Path) -> None:
    result = judged(tmp_path, runs=[{"faults": ["crash"]}])
    assert {(found.status, found.reason.partition(":")[0], found.value) for found in result.checks} == {
        ("inconclusive", "not_measured", None)
    }
    assert result.metrics == {}
    assert result.runs[0].outcome.rank == 1
    assert result.curve, "the curve of a lost run is still shown"


def test_divergence_is_told_before_missed_quality(tmp_path: Path) -> None:
    result = judged(tmp_path, runs=[{"faults": ["diverged"], "quality": (0.1, 0.2, 0.3)}])
    assert check(result, "quality").status == "fail"
    assert (result.outcome.category, "parameters of rank 1 differ" in result.outcome.reason) == ("ranks_diverged", True)


def test_missed_quality_misses_time_to_train_too_but_is_named_first(tmp_path: Path) -> None:
    result = judged(tmp_path, runs=[{"quality": (0.3, 0.6, 0.65)}])
    assert (result.outcome.category, result.outcome.reason) == ("quality", "0.65 is not >= 0.7")
    time = check(result, "time_to_train")
    assert (time.status, time.value) == ("fail", None)
    assert time.reason == "the target 0.7 was not reached; training ended by max_samples"


def test_undeclared_time_to_train_of_a_missed_target_is_no_failure(tmp_path: Path) -> None:
    plan = tiny_plan()
    undeclared = {"threshold": None, "required": False}
    checks = tuple(c.model_copy(update=undeclared if c.name == "time_to_train" else {}) for c in plan.checks)
    result = judged(tmp_path, plan.model_copy(update={"checks": checks}), runs=[{"quality": (0.1, 0.1, 0.1)}])
    assert check(result, "time_to_train").status == "inconclusive"


@pytest.mark.parametrize(
    ("name", "metric", "op", "value", "status", "category"),
    [
        ("throughput", "throughput_train", ">=", 150, "passed", ""),
        ("throughput", "throughput_train", ">=", 170, "failed", "throughput"),
        ("time_to_train", "time_to_train_s", "<=", 12.0, "failed", "time_to_train"),
        ("time_to_train", "time_to_train_s", "<=", 13.5, "passed", ""),
        ("memory", "memory_peak_gib", "<=", 0.5, "failed", "check"),
        ("trained", "samples_trained", "==", 1920, "passed", ""),
        ("trained", "samples_trained", "==", 1921, "failed", "check"),
        ("mfu", "mfu", ">=", 0.1, "inconclusive", "not_observable"),
        ("own", "no_such_metric", ">=", 0.0, "inconclusive", "not_observable"),
    ],
)
def test_declared_thresholds(
    tmp_path: Path, name: str, metric: str, op: str, value: float, status: str, category: str
) -> None:
    result = judged(tmp_path, declaring(name, metric, op, value))
    assert (result.outcome.status, result.outcome.category) == (status, category)
    assert check(result, name).source == "a test"


def test_tolerance_is_relative(tmp_path: Path) -> None:
    plan = declaring("throughput", "throughput_train", ">=", 170)
    eased = plan.checks[-1].model_copy(update={"tolerance": 0.1})
    result = judged(tmp_path, plan.model_copy(update={"checks": (*plan.checks[:-1], eased)}))
    assert result.outcome.status == "passed"


def test_throughput_needs_a_steady_state(tmp_path: Path) -> None:
    plan = declaring("throughput", "throughput_train", ">=", 100)
    result = judged(tmp_path, plan, runs=[{"faults": ["drift"], "steps": 240}])
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "no_steady_state")
    assert "drifted by +20" in result.outcome.reason


def test_throughput_run_without_any_threshold_proves_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, tiny_plan(mode="throughput"))
    assert (result.outcome.status, result.outcome.category) == ("inconclusive", "no_threshold")
    assert result.metrics["throughput_train"].value == pytest.approx(160, rel=0.01)
    declared = judged(tmp_path / "b", declaring("throughput", "throughput_train", ">=", 1, mode="throughput"))
    assert declared.outcome.status == "passed"


def test_median_of_repeats_but_quality_in_every_run(tmp_path: Path) -> None:
    plan = declaring("throughput", "throughput_train", ">=", 150, repeat=3, seeds=(1, 2, 3))
    runs: list[dict[str, Any]] = [{"step_s": 0.1}, {"step_s": 0.2}, {"step_s": 0.1}]
    result = judged(tmp_path / "a", plan, runs=runs)
    assert result.outcome.status == "passed"
    assert len(result.metrics["throughput_train"].values) == 3
    assert [run.seed for run in result.runs] == [1, 2, 3]
    # The median run by time to train: the first of the two fast ones takes as long as the other.
    assert result.ledger == result.runs[0].ledger or result.ledger == result.runs[2].ledger
    result = judged(tmp_path / "b", plan, runs=[{}, {"quality": (0.1, 0.2, 0.3)}, {}])
    assert (result.outcome.category, check(result, "quality").value) == ("quality", 0.3)
    result = judged(tmp_path / "c", plan, runs=[{}, {"faults": ["diverged"]}, {}])
    assert result.outcome.category == "ranks_diverged"


def test_a_lost_repeat_loses_the_plan_and_an_absent_one_too(tmp_path: Path) -> None:
    plan = tiny_plan(repeat=2, seeds=(1, 2))
    result = judged(tmp_path / "a", plan, runs=[{}, {"faults": ["crash"]}])
    assert (result.outcome.category, result.outcome.reason) == ("crash", "run 2 of 2: rank 1 died")
    result = judged(tmp_path / "b", plan, runs=[{}])
    assert (result.outcome.category, result.outcome.reason.startswith("1 of 2 runs")) == ("worker_lost", True)


def test_newest_attempt_counts(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_plan_folder(tmp_path / "plan", plan, runs=[{"faults": ["crash"]}])
    write_run(folder / "r1.2", plan, faults=["crash"], attempt=2)
    write_run(folder / "r1.10", plan, attempt=10)
    result = judge_folder(folder)
    assert result.outcome.status == "passed"
    assert (result.runs[0].folder, result.runs[0].attempts) == ("r1.10", 10)


def test_settled_outcome_wins(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", tiny_plan())
    settled = {"status": "error", "category": "interrupted", "reason": "Ctrl-C", "rank": None, "log_tail": []}
    write_lines(folder / "harness.jsonl", [{"event": "settled", "t": 1, "t_wall": 1, "outcome": settled}])
    assert judge_folder(folder).outcome.model_dump(mode="json") == settled
    write_lines(folder / "harness.jsonl", [{"event": "settled", "outcome": {"status": "passed"}}])
    assert judge_folder(folder).outcome.status == "passed"
    write_lines(folder / "harness.jsonl", [{"event": "settled", "outcome": {"status": "green"}}])
    assert judge_folder(folder).outcome.category == "harness"


def test_plan_that_never_ran(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    tiny_plan().write(folder / "plan.json")
    result = judge_folder(folder)
    assert (result.outcome.category, len(result.checks), result.runs) == ("worker_lost", 5, ())


@pytest.mark.parametrize(
    ("base_runs", "threshold", "status", "category"),
    [
        ([{}, {}], 1.5, "passed", ""),
        ([{}, {}], 2.5, "failed", "speedup"),
        ([{"step_s": 0.08}, {"step_s": 0.12}], 1.9, "inconclusive", "noise"),
        ([{"step_s": 0.098}, {"step_s": 0.102}], 1.2, "passed", ""),
        ([{"step_s": 0.098}, {"step_s": 0.102}], 3.2, "failed", "speedup"),
        ([{"step_s": 0.098}, {"step_s": 0.102}], 1.5, "inconclusive", "noise"),
        ([{}], 1.5, "passed", ""),
        ([{}], 2.5, "failed", "speedup"),
        ([{}, {"faults": ["no_run_stop"]}], 1.5, "inconclusive", "no_baseline"),
        ([{"steps": 10}], 1.5, "inconclusive", "no_baseline"),
        ([], 1.5, "inconclusive", "no_baseline"),
        ([], None, "passed", ""),
    ],
    ids=[
        "met",
        "missed",
        "straddled",
        "clear",
        "clearly missed",
        "less clear",
        "one base run",
        "one base run, missed",
        "base void",
        "base unsteady",
        "no base",
        "undeclared",
    ],
)
def test_speedup(
    tmp_path: Path, base_runs: list[dict[str, Any]], threshold: float | None, status: str, category: str
) -> None:
    result = judged(tmp_path, with_base(tiny_plan(), threshold), base_runs=base_runs)
    assert (result.outcome.status, result.outcome.category) == (status, category)
    assert result.base is not None
    found = check(result, "speedup")
    assert found.baseline is not None
    assert found.baseline["id"] == "toy-pytorch-cpu-host-mini-throughput-1x1"
    if base_runs == [{}, {}]:
        assert found.value == pytest.approx(2.0, rel=0.01)
        assert found.baseline["value"] == pytest.approx(80, rel=0.01)
        assert result.metrics["efficiency"].value == pytest.approx(1.0, rel=0.01)


def test_speedup_of_a_cost_is_base_over_run(tmp_path: Path) -> None:
    plan = with_base(tiny_plan(speedup_metric="step_time_median_s"), 1.5)
    result = judged(tmp_path, plan, runs=[{"step_s": 0.05}], base_runs=[{}, {}])
    assert check(result, "speedup").value == pytest.approx(2.0, rel=0.01)


def test_spread_of_the_repeats_counts_as_noise(tmp_path: Path) -> None:
    plan = with_base(tiny_plan(repeat=2, seeds=(1, 2)), 1.9)
    result = judged(tmp_path, plan, runs=[{"step_s": 0.1}, {"step_s": 0.12}], base_runs=[{}, {}])
    assert result.outcome.category == "noise"


def test_reused_base_is_named_and_its_digest_compared(tmp_path: Path) -> None:
    plan = with_base(tiny_plan())
    assert plan.base is not None
    earlier = write_plan_folder(tmp_path / "earlier", plan.base.model_copy(update={"repeat": 2}), runs=[{}, {}])
    folder = write_plan_folder(tmp_path / "plan", plan)
    line = {"event": "base", "folder": str(earlier), "reused": True, "plan_digest": "p1x1"}
    line["note"] = "of an earlier session"
    write_lines(folder / "harness.jsonl", [line])
    result = judge_folder(folder)
    assert (result.outcome.status, check(result, "speedup").status) == ("passed", "pass")
    assert result.base is not None and result.base.note == "of an earlier session"
    plan.base.model_copy(update={"plan_digest": "other"}).write(earlier / "plan.json")
    assert "has plan_digest other, not p1x1" in judge_folder(folder).outcome.reason


def test_base_from_baselines(tmp_path: Path) -> None:
    plan = with_base(tiny_plan())
    assert plan.base is not None
    base = judge_folder(write_plan_folder(tmp_path / "earlier", plan.base, runs=[{}, {}]))
    approved = tmp_path / "baselines" / "cpu"
    approved.mkdir(parents=True)
    (approved / "broken.json").write_text("{")
    base.write(approved / "toy.json")
    folder = write_plan_folder(tmp_path / "plan", plan)
    assert judge_folder(folder).outcome.category == "no_baseline"
    result = judge_folder(folder, baselines=[tmp_path / "nowhere", tmp_path / "baselines"])
    assert result.outcome.status == "passed"
    assert check(result, "speedup").value == pytest.approx(2.0, rel=0.01)


def test_the_same_bytes_twice_and_a_round_trip(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", with_base(tiny_plan()), base_runs=[{}, {}])
    first = judge_folder(folder)
    first.write(folder / "result.json")
    second = judge_folder(folder)
    assert first.model_dump_json() == second.model_dump_json()
    assert Result.read(folder / "result.json") == first
    json.loads(first.model_dump_json(), parse_constant=pytest.fail)


def test_moved_folder_is_judged_alike(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", with_base(tiny_plan()), base_runs=[{}, {}])
    before = judge_folder(folder).model_dump_json()
    moved = shutil.copytree(folder, tmp_path / "with blank" / "plan")
    assert judge_folder(moved).model_dump_json() == before


def test_artifacts_by_digest_without_links(tmp_path: Path) -> None:
    folder = write_plan_folder(tmp_path / "plan", tiny_plan())
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "r1" / "logs" / "link.log").symlink_to(secret)
    with (folder / "r1" / "checkpoints" / "latest.pt").open("wb") as file:
        file.truncate(65 << 20)
    (folder / "result.json").write_text("{}")
    found = {artifact.path: artifact for artifact in judge_folder(folder).artifacts}
    assert "r1/events/rank0.jsonl" in found and "plan.json" in found
    assert "r1/logs/link.log" not in found and "result.json" not in found
    assert found["r1/checkpoints/latest.pt"].sha256.startswith("head+tail:")
    assert len(found["plan.json"].sha256) == 64


def test_folder_without_a_plan_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"plan\.json: no such file"):
        judge_folder(tmp_path)
    (tmp_path / "plan.json").write_text('{"schema_version": 1}')
    with pytest.raises(UsageProblem, match="not a plan of this version"):
        judge_folder(tmp_path)
    (tmp_path / "plan.json").write_text('{"schema_version": 9}')
    with pytest.raises(UsageProblem, match="schema_version 9 is newer than 1"):
        judge_folder(tmp_path)


leaf = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.integers(), st.integers(-(10**400), 10**400), st.floats(),
    st.sampled_from([0, -1, 1e308, -1e308, 2**63, "nan", "inf", [], {}, [[]], ["x"], [1e308, 1e308]]),
)  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = with_base(tiny_plan())
    return write_plan_folder(
        tmp_path_factory.mktemp("sound") / "plan", plan, runs=[{"steps": 30}], base_runs=[{"steps": 30}]
    )


FILES = (
    "harness.jsonl", "r1/harness.jsonl", "r1/events/rank0.jsonl", "r1/events/rank1.jsonl", "r1/monitor.jsonl",
    "r1/run.json", "r1/environment.json", "r1/exits/rank1.json", "base/r1/events/rank0.jsonl", "base/plan.json",
)  # fmt: skip

quiet = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def judge_with(sound: Path, name: str, content: bytes) -> Result:
    """The verdict with one file replaced; everything that may be printed and stored, too."""
    path = sound / name
    before = path.read_bytes()
    try:
        path.write_bytes(content)
        result = judge_folder(sound)
        assert Result.model_validate_json(result.model_dump_json()).id == result.id
        assert result.checks[0].name == "quality"
        return result
    finally:
        path.write_bytes(before)


@quiet
@given(name=st.sampled_from(FILES), data=st.data())
def test_any_value_anywhere_gives_a_result(sound: Path, name: str, data: st.DataObject) -> None:
    rows = read_lines(sound / name) if name.endswith("jsonl") else [json.loads((sound / name).read_text())]
    row = data.draw(st.sampled_from(rows))
    if row:
        key = data.draw(st.sampled_from(sorted(row)))
        row[key] = data.draw(leaf)
    judge_with(sound, name, b"".join(json.dumps(line).encode() + b"\n" for line in rows))


@quiet
@given(name=st.sampled_from(FILES), content=st.binary(max_size=200), keep=st.integers(0, 3000))
def test_any_bytes_anywhere_give_a_result(sound: Path, name: str, content: bytes, keep: int) -> None:
    judge_with(sound, name, (sound / name).read_bytes()[:keep] + content)


def test_absent_folders_and_strange_names_give_a_result(tmp_path: Path) -> None:
    for number, gone in enumerate(("events", "exits", "logs", "harness.jsonl", "run.json", "events/rank0.jsonl")):
        folder = write_plan_folder(tmp_path / str(number), tiny_plan())
        path = folder / "r1" / gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / "r").mkdir()
        (folder / "r0").mkdir()
        (folder / "r1.x").mkdir()
        (folder / "r2").write_text("a file")
        result = judge_folder(folder)
        assert (result.outcome.status in ("failed", "error")) == (gone not in ("logs", "run.json")), gone
