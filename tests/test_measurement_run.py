"""Measuring a run folder: worked numbers, faults, edits, resumption, and what monitors add."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.artifacts import event_seals
from suite.measure import measure
from suite.measurement import Measurement
from suite.metrics import METRICS, metric_of
from suite.plan import Machine
from suite.rates import effective_dtype, percentile
from tests.run_folders import FAULTS, read_lines, tiny_plan, write_lines, write_run

Edit = Callable[[dict[str, Any]], None]


def measured(folder: Path, **over: Any) -> Measurement:
    plan = over.pop("plan", None) or tiny_plan()
    return measure(plan, write_run(folder / "r1", plan, **over))


def edit(folder: Path, rank: int, event: str, change: Edit, which: int = 0) -> Measurement:
    """Measure a good run after `change` to its `which`-th `event` line of `rank`."""
    plan = tiny_plan()
    path = write_run(folder / "r1", plan) / "events" / f"rank{rank}.jsonl"
    lines = read_lines(path)
    change([line for line in lines if line["event"] == event][which])
    write_lines(path, lines)
    return measure(plan, folder / "r1")


def test_worked_numbers(tmp_path: Path) -> None:
    run = measured(tmp_path, noise=0.0)
    assert run.problem is None
    expected = {
        "throughput_train": 160.0,  # 2 ranks x 8 samples in 0.1 s
        "throughput_core": 16 / 0.09,
        "throughput_whole": 1920 / 12.904,  # 120 steps of 0.1 s, three evaluations of 0.301 s, from run_start
        "tokens_per_s": 2560.0,
        "step_time_median_s": 0.1,
        "step_time_max_s": 0.1,
        "data_wait_fraction": 0.1,
        "rank_spread": 1.0,
        "time_to_train_s": 12.902,
        "time_to_train_resolution_s": 4.301,
        "accuracy": 0.75,
        "quality_best": 0.75,
        "samples_trained": 1920,
        "steps": 120,
        "skipped_steps": 0,
        "epochs": 1,
        "ranks_in_sync": 1,
        "init_s": 0.51,
        "memory_peak_gib": 1.0,
    }
    assert {name: run.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert run.metrics["throughput_core"] > run.metrics["throughput_train"] > run.metrics["throughput_whole"]
    assert [point.value for point in run.curve] == [0.3, 0.6, 0.75]
    assert run.curve[0].t == pytest.approx(4.3, abs=0.01)
    assert (len(run.losses), run.losses[0], run.seed, run.attempts) == (120, (1, 1.9802), 1, 1)


def test_one_slow_step_in_ten_is_work_over_time_not_a_mean_of_rates(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, noise=0.0)
    for path in (folder / "events").iterdir():
        delay, lines = 0.0, read_lines(path)
        for line in lines:
            if line["event"] == "steps":
                line["step_s"][4] = 1.1
                line["window_s"] = sum(line["step_s"])
                delay += 1.0
            line["t"] += delay
        lines[-1]["t_wall"] += delay
        lines[-1]["t_mono"] += delay
        write_lines(path, lines)
    harness = read_lines(folder / "harness.jsonl")
    for line in harness:
        if line["event"] == "witness":
            line["span_s"] = [end + 12 for end in line["span_s"]]
    write_lines(folder / "harness.jsonl", harness)
    run = measure(plan, folder)
    assert run.problem is None
    # Ten steps take 2.0 s; the mean of the rates would be 145.
    assert run.metrics["throughput_train"] == pytest.approx(80, rel=0.03)
    assert run.metrics["step_time_median_s"] == pytest.approx(0.1)
    assert run.metrics["step_time_max_s"] == pytest.approx(1.1)


def test_every_metric_has_a_value_or_a_reason_and_a_declaration(tmp_path: Path) -> None:
    run = measured(tmp_path)
    base_only = {"speedup", "efficiency"}
    assert run.metrics.keys() | run.missing.keys() == METRICS.keys() - base_only | {"accuracy"}
    assert not run.metrics.keys() & run.missing.keys()
    assert all(reason.reason for reason in run.missing.values())
    assert metric_of(tiny_plan(), "throughput_train").unit == "image/s"
    assert metric_of(tiny_plan(), "accuracy").better == "higher"


PROBLEMS = {
    "missing_rank": ("failed", "invalid_measurement", "events/rank1.jsonl: missing"),
    "no_header": ("failed", "invalid_measurement", "events/rank1.jsonl:1:"),
    "no_run_stop": ("failed", "invalid_measurement", "events/rank1.jsonl: no run_stop"),
    "nonzero_exit": ("error", "crash", "rank 1 left with status 1"),
    "aborted": ("error", "crash", "rank 0 aborted: ValueError: broken"),
    "environment": ("error", "environment", "precision is fp32, expected bf16"),
    "nan_loss": ("failed", "nonfinite_loss", "the loss of rank 1 is not finite at step 20"),
    "other_windows": ("failed", "invalid_measurement", "events/rank1.jsonl"),
    "forged_clock": ("failed", "invalid_measurement", "the harness saw only"),
    "short_batch": ("failed", "invalid_measurement", "more than 10 steps x global batch 16"),
    "crash": ("error", "crash", "rank 1 died"),
    "no_ended": ("error", "worker_lost", "does not say how the run ended"),
}


@pytest.mark.parametrize("fault", sorted(PROBLEMS))
def test_faults_that_lose_or_void_the_run(tmp_path: Path, fault: str) -> None:
    status, category, sentence = PROBLEMS[fault]
    run = measured(tmp_path, faults=[fault])
    assert run.problem is not None
    assert (run.problem.status, run.problem.category) == (status, category)
    assert sentence in run.problem.reason
    assert run.metrics == {}


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - PROBLEMS.keys()))
def test_other_faults_leave_numbers_to_judge(tmp_path: Path, fault: str) -> None:
    run = measured(tmp_path, faults=[fault], steps=240)
    assert run.problem is None
    assert run.metrics["samples_trained"] == 3840


def test_problem_carries_the_log_of_the_rank_with_control_characters_written_out(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, faults=["nan_loss"])
    (folder / "logs" / "rank1.log").write_bytes(b"first\n" + b"\x1b[31mred\x1b[0m \xff\r\nlast\n\n")
    problem = measure(plan, folder).problem
    assert problem is not None
    assert (problem.rank, problem.log_tail) == (1, ("first", "\\x1b[31mred\\x1b[0m \ufffd", "last"))


def scaled(key: str, factor: float) -> Edit:
    def change(line: dict[str, Any]) -> None:
        line[key] = type(line[key])(line[key] * factor)

    return change


def set_to(key: str, value: object) -> Edit:
    return lambda line: line.update({key: value})


def first_of(key: str, value: float) -> Edit:
    return lambda line: line[key].__setitem__(0, value)


EDITS: dict[str, tuple[int, str, Edit]] = {
    "step faster": (1, "steps", first_of("step_s", 0.05)),
    "step slower": (0, "steps", first_of("step_s", 0.2)),
    "window shorter": (1, "steps", scaled("window_s", 0.5)),
    "both shorter, count kept": (0, "steps", lambda line: line["step_s"].pop()),
    "samples doubled": (1, "steps", scaled("samples", 2)),
    "one sample less": (1, "steps", lambda line: line.update(samples=line["samples"] - 1)),
    "one sample more": (0, "steps", lambda line: line.update(samples=line["samples"] + 1)),
    "first moved": (1, "steps", set_to("first", 2)),
    "count raised": (0, "steps", set_to("count", 11)),
    "wait longer than step": (1, "steps", first_of("data_s", 0.2)),
    "time moved back": (1, "steps", scaled("t", 0.5)),
    "time moved on": (0, "steps", scaled("t", 1.5)),
    "clock started late": (0, "run_start", lambda line: line.update(t=line["t"] + 0.3)),
    "clock reset": (0, "run_start", lambda line: line.update(t=0.0)),
    "resumed from nowhere": (0, "run_start", set_to("resumed_from_step", 7)),
    "batch doubled": (0, "run_start", scaled("global_batch", 2)),
    "batch halved": (0, "run_start", scaled("global_batch", 0.5)),
    "quality met": (0, "eval_result", lambda line: line["metrics"].update(accuracy=0.9)),
    "quality renamed": (0, "eval_result", lambda line: line.update(metrics={"top5": 0.9})),
    "met claimed": (0, "eval_result", set_to("met", True)),
    "evaluation's samples": (0, "eval_result", scaled("samples", 2)),
    "evaluation's step": (0, "eval_result", set_to("step", 41)),
    "stop's step": (1, "run_stop", set_to("step", 119)),
    "stop's samples": (0, "run_stop", scaled("samples", 2)),
    "stop's wall clock": (1, "run_stop", lambda line: line.update(t_wall=line["t_wall"] + 60)),
    "stop's status": (1, "run_stop", set_to("status", "ok")),
    "world size": (1, "header", set_to("world_size", 4)),
    "rank": (1, "header", set_to("rank", 0)),
    "run id": (1, "header", set_to("run", "another")),
    "schema": (0, "header", set_to("schema", 2)),
    "devices": (0, "header", set_to("devices", 2)),
    "active before": (0, "run_start", set_to("active_s", 5)),
    "checksum's step": (1, "checksum", set_to("step", 7)),
    "evaluation began elsewhere": (0, "eval_start", set_to("step", 41)),
    "checkpoint elsewhere": (0, "checkpoint_stop", set_to("step", 41)),
    "local rank": (1, "header", set_to("local_rank", 0)),
    "other clock": (1, "header", scaled("t_mono", 2)),
    "name": (1, "heartbeat", set_to("event", "heartbreak")),
}


@pytest.mark.parametrize("name", sorted(EDITS))
def test_one_edited_number_voids_the_measurement(tmp_path: Path, name: str) -> None:
    rank, event, change = EDITS[name]
    run = edit(tmp_path, rank, event, change)
    assert run.problem is not None, "the edit went unnoticed"
    assert (run.problem.status, run.problem.category) == ("failed", "invalid_measurement")
    assert "events" in run.problem.reason


def test_any_edit_of_a_sealed_stream_is_told(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    harness = read_lines(folder / "harness.jsonl")
    for line in harness:
        if line["event"] == "witness":
            line["events"] = event_seals(folder)
    write_lines(folder / "harness.jsonl", harness)
    assert measure(plan, folder).problem is None
    path = folder / "events" / "rank0.jsonl"
    path.write_text(path.read_text().replace('"accuracy": 0.75', '"accuracy": 0.76'))
    problem = measure(plan, folder).problem
    assert problem is not None
    assert (problem.category, "rank0.jsonl: not the file that the harness saw" in problem.reason) == (
        "invalid_measurement",
        True,
    )


def test_edited_target_reached_is_told(tmp_path: Path) -> None:
    def lower(line: dict[str, Any]) -> None:
        line.update(metrics={"accuracy": 0.6}, met=False)

    run = edit(tmp_path, 0, "eval_result", lower, which=2)
    assert run.problem is not None
    assert "reason is target_reached, but no evaluation meets 0.7" in run.problem.reason


def test_a_removed_line_is_told(tmp_path: Path) -> None:
    plan = tiny_plan()
    for rank in (0, 1):
        folder = write_run(tmp_path / f"r{rank + 1}", plan)
        path = folder / "events" / f"rank{rank}.jsonl"
        lines = read_lines(path)
        for i, line in enumerate(lines):
            if line["event"] in ("header", "steps", "run_stop", "run_start", "checksum"):
                write_lines(path, lines[:i] + lines[i + 1 :])
                run = measure(plan, folder)
                told = run.problem is not None or run.missing.get("ranks_in_sync") is not None
                assert told, f"removing {line['event']} of rank {rank} went unnoticed"


def test_checksum_that_claims_equality_against_its_own_digests(tmp_path: Path) -> None:
    def other(line: dict[str, Any]) -> None:
        line["groups"][0]["digest"] = "another"

    assert edit(tmp_path, 1, "checksum", other).metrics["ranks_in_sync"] == 0.0


def test_a_stranger_among_the_streams(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    write_lines(folder / "events" / "rank7.jsonl", read_lines(folder / "events" / "rank1.jsonl"))
    problem = measure(plan, folder).problem
    assert problem is not None and "rank7.jsonl: no rank of this run" in problem.reason


def test_mfu_needs_a_known_peak_and_stays_below_one(tmp_path: Path) -> None:
    known = tiny_plan(machine_facts=Machine(name="chip", peak_tflops={"fp32": 1.0}))
    run = measured(tmp_path / "a", plan=known)
    assert run.metrics["mfu"] == pytest.approx(160 * 1e9 / 2e12, rel=1e-3)
    assert run.environment["mfu"] == {"formula": "palm", "dtype": "fp32", "peak_tflops": 1.0}
    assert measured(tmp_path / "b").missing["mfu"].reason == "machine host has no peak for fp32"
    assert "counts no FLOP" in measured(tmp_path / "c", plan=known, flops_per_sample=None).missing["mfu"].reason
    problem = measured(tmp_path / "d", plan=known, flops_per_sample=1e11).problem
    assert problem is not None and (problem.category, "not possible" in problem.reason) == ("invalid_measurement", True)


def test_power_and_utilisation_of_the_train_window_only(tmp_path: Path) -> None:
    run = measured(tmp_path, power_w=300.0)
    assert run.metrics["power_mean_w"] == pytest.approx(600.0, rel=0.1)
    assert run.metrics["gpu_utilisation_mean"] == pytest.approx(90, rel=0.1)
    assert run.metrics["energy_j"] == pytest.approx(run.metrics["power_mean_w"] * 12.9, rel=0.01)
    assert run.metrics["energy_per_sample_j"] == pytest.approx(run.metrics["energy_j"] / 1920)


def test_a_throughput_run_is_not_charged_for_its_compilation(tmp_path: Path) -> None:
    """Power of the steady steps only; a converging run pays for every second of its training."""
    power = {}
    for mode in ("throughput", "converge"):
        plan = tiny_plan(mode=mode)
        folder = write_run(tmp_path / mode, plan, power_w=300.0, faults={"slow_start"})
        lines = read_lines(folder / "monitor.jsonl")
        idle = lines[0]["t_wall"] + 16  # three steps of 5 s come first
        for line in lines:
            for device in line["devices"]:
                device.pop("energy_j", None)
                device["power_w"] = 10.0 if line["t_wall"] < idle else 300.0
        write_lines(folder / "monitor.jsonl", lines)
        power[mode] = measure(plan, folder).metrics["power_mean_w"]
    assert power["throughput"] == pytest.approx(600.0, rel=0.1)
    assert power["converge"] < 400.0


def test_zero_watts_are_no_measurement_and_half_the_devices_are_not_the_whole(tmp_path: Path) -> None:
    assert measured(tmp_path / "a", power_w=0.0).missing["power_mean_w"].category == "not_observable"
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, power_w=300.0)
    lines = [line | {"devices": line["devices"][:1]} for line in read_lines(folder / "monitor.jsonl")]
    write_lines(folder / "monitor.jsonl", lines)
    run = measure(plan, folder)
    assert "power_mean_w" in run.missing
    assert run.metrics["gpu_utilisation_mean"] > 0


def test_energy_counter_is_preferred_unless_it_stands_still(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, power_w=300.0)
    lines = read_lines(folder / "monitor.jsonl")
    for rate, expected in ((200.0, 400 * 12.9), (0.0, 600 * 12.9)):
        for i, line in enumerate(lines):
            for device in line["devices"]:
                device["energy_j"] = 1000 + rate * i
        write_lines(folder / "monitor.jsonl", lines)
        assert measure(plan, folder).metrics["energy_j"] == pytest.approx(expected, rel=0.1)


def test_resumed_run_adds_its_segments_but_rates_are_its_own(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    for path in (folder / "events").iterdir():
        lines = read_lines(path)
        for line in lines:
            for key in ("step", "first"):
                if key in line:
                    line[key] += 100
            if line["event"] == "run_start":
                line |= {"resumed_from_step": 100, "segment": 2, "active_s": 50.0}
            if line["event"] in ("eval_result", "run_stop"):
                line["samples"] += 1600
        write_lines(path, lines)
    lines = read_lines(folder / "events" / "rank0.jsonl")
    for line in lines:
        if line["event"] == "run_start":
            line |= {"resumed_from_step": 100, "segment": 2, "active_s": 50.0}
    write_lines(folder / "events" / "rank0.jsonl", lines)
    run = measure(plan, folder)
    assert run.problem is None
    assert run.metrics["time_to_train_s"] == pytest.approx(62.9, abs=0.01)
    assert (run.metrics["samples_trained"], run.metrics["steps"]) == (3520, 220)
    assert run.metrics["throughput_whole"] == pytest.approx(1920 / 12.9, rel=1e-3)


def test_clocks_of_two_ranks_are_never_compared(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    before = measure(plan, folder)
    path = folder / "events" / "rank1.jsonl"
    lines = read_lines(path)
    for line in lines:
        line["t"] -= 1400
        if line["event"] in ("header", "run_stop"):
            line["t_mono"] -= 1400
    write_lines(path, lines)
    assert measure(plan, folder).metrics == before.metrics


def test_straggler_is_shown_by_its_own_steps(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, noise=0.0)
    other = write_run(tmp_path / "slow", plan, noise=0.0, step_s=0.12)
    (folder / "events" / "rank1.jsonl").write_bytes((other / "events" / "rank1.jsonl").read_bytes())
    run = measure(plan, folder)
    assert run.problem is None
    assert run.metrics["rank_spread"] == pytest.approx(0.12 / 0.11)
    assert run.metrics["throughput_train"] == pytest.approx(16 / 0.12, rel=1e-3)


@pytest.mark.parametrize(
    "ends", [None, [0], [None, None], ["0", "1"], [0, 10**400], [9, 3], [-5, -3], [0, 1, 2], {"least": 0}, True]
)
def test_a_witness_without_an_interval_still_tells_a_forged_clock(tmp_path: Path, ends: Any) -> None:
    """From the first header to the last exit is the most that can have passed."""
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    lines = read_lines(folder / "harness.jsonl")
    for line in lines:
        if line["event"] == "witness":
            line |= {"span_s": ends, "wall_s": 1.0}
    write_lines(folder / "harness.jsonl", lines)
    problem = measure(plan, folder).problem
    assert problem is not None and "the harness saw only 1 s pass" in problem.reason


def saw_pass(folder: Path, **ends: float) -> None:
    """The harness's witness tells another least or most."""
    lines = read_lines(folder / "harness.jsonl")
    for line in lines:
        if line["event"] == "witness":
            least, most = line["span_s"]
            line["span_s"] = [ends.get("least", least), ends.get("most", most)]
    write_lines(folder / "harness.jsonl", lines)


def test_witness_that_saw_far_more_time_than_the_events_tell(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    assert measure(plan, folder).problem is None
    saw_pass(folder, most=1000.0)
    assert measure(plan, folder).problem is None, "nobody looked for long: that says nothing"
    saw_pass(folder, least=40.0)
    problem = measure(plan, folder).problem
    assert problem is not None and "of the 40 s that the harness saw pass" in problem.reason


def test_one_stream_may_drive_several_devices(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan, ranks=1)
    path = folder / "events" / "rank0.jsonl"
    lines = read_lines(path)
    lines[0]["devices"] = 2
    write_lines(path, lines)
    log = plan.model_copy(update={"evidence": "callback"})
    run = measure(log, folder)
    assert run.problem is None
    assert run.metrics["throughput_train"] == pytest.approx(80, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ({"compute": "bf16", "autocast": "bfloat16"}, "bf16"),
        ({"compute": "tf32", "tf32": True}, "tf32"),
        ({"compute": "fp32", "tf32": True}, "fp32"),
        ({"compute": None, "autocast": "float16"}, "fp16"),
        ({}, "unknown"),
    ],
    ids=["bf16", "tf32", "fp32", "fp16", "unknown"],
)
def test_effective_dtype(precision: dict[str, object], dtype: str) -> None:
    assert effective_dtype(precision) == dtype


def test_percentiles_between_neighbours() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [percentile(values, q) for q in (0.0, 0.5, 0.95, 1.0)] == pytest.approx([1.0, 3.0, 4.8, 5.0])
    assert percentile([7.0], 0.99) == 7.0


def test_early_steps_are_missing_not_zero(tmp_path: Path) -> None:
    run = measured(tmp_path, steps=10, quality=(0.9,))
    assert run.problem is None
    assert run.missing["throughput_train"].category == "no_steady_state"
    assert "throughput_train" not in run.metrics
    assert run.metrics["throughput_whole"] > 0


def test_monitor_and_environment_of_any_kind_do_no_harm(tmp_path: Path) -> None:
    plan = tiny_plan()
    folder = write_run(tmp_path / "r1", plan)
    (folder / "monitor.jsonl").write_text(
        'nonsense\n[]\n{"t_wall":1}\n{"t_wall":2005,"devices":[1,{"id":null}]}\n{"t_w'
    )
    (folder / "environment.json").write_text("[1, 2]")
    (folder / "run.json").write_text(json.dumps({"n": -1, "seed": "x", "attempt": 0, "quality": []}))
    run = measure(plan, folder)
    assert run.problem is None
    assert (run.n, run.seed, run.attempts) == (1, 1, 1)
