"""The driver trains for real: alone and by torchrun, to every end that a run can have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.driver_toy import ROOT, environment, events, launch, losses, train, write_run

torch = pytest.importorskip("torch")

KEYS = {
    "header": "schema run rank world_size local_rank node_rank host pid t_wall t_mono devices device framework "
    "precision fallbacks slots timer transport versions",
    "init_start": "",
    "init_stop": "parameters trainable",
    "run_start": "resumed_from_step segment flops_per_sample flops_formula global_batch active_s",
    "epoch_start": "epoch",
    "epoch_stop": "epoch",
    "steps": "first count step_s data_s samples tokens loss lr skipped window_s",
    "eval_start": "step",
    "eval_stop": "step",
    "eval_result": "step samples metrics met",
    "checkpoint_start": "step",
    "checkpoint_stop": "step path bytes",
    "memory": "peak_bytes reserved_bytes",
    "heartbeat": "step phase",
    "checksum": "step groups equal spread uncovered",
    "warning": "text",
    "run_stop": "status reason detail step samples t_wall t_mono",
}
OF_ALL_RANKS = {"header", "steps", "heartbeat", "checksum", "warning", "run_stop"}


def check_stream(folder: Path, rank: int = 0) -> None:
    """Every line as docs/contracts.md, section 3, has it."""
    every = events(folder, rank)
    names = [event["event"] for event in every]
    assert names[0] == "header" and names[-1] == "run_stop"
    assert names.count("header") == names.count("run_stop") == 1
    assert [event["t"] for event in every] == sorted(event["t"] for event in every)
    assert rank == 0 or set(names) <= OF_ALL_RANKS
    for event in every:
        assert set(KEYS[event["event"]].split()) <= set(event), event
    step = None
    for window in (event for event in every if event["event"] == "steps"):
        assert len(window["step_s"]) == len(window["data_s"]) == len(window["loss"]) == window["count"]
        assert all(0 <= wait <= took for wait, took in zip(window["data_s"], window["step_s"]))
        assert sum(window["step_s"]) == pytest.approx(window["window_s"], rel=0.01, abs=1e-3)
        assert step is None or window["first"] == step
        step = window["first"] + window["count"]


def stop(folder: Path, rank: int = 0) -> tuple[str, str]:
    event = events(folder, rank)[-1]
    return event["status"], event["reason"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of 80 steps with dropout, to max_samples, with its final checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    done = launch(folder, params={"dropout": 0.2}, checkpoint={"every_s": 0, "final": True}, heartbeat_s=0.05)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank, 512 samples in batches of 16."""
    folder = tmp_path_factory.mktemp("alone")
    assert train(folder, params={"max_samples": 512}).returncode == 0
    return folder


def test_a_run_ends_at_max_samples_with_every_event(whole: Path) -> None:
    check_stream(whole)
    assert stop(whole) == ("success", "max_samples")
    names = [event["event"] for event in events(whole) if event["event"] != "heartbeat"]
    assert set(KEYS) - set(names) <= {"heartbeat", "warning"}
    assert names[:5] == ["header", "init_start", "init_stop", "run_start", "epoch_start"]
    results = events(whole, name="eval_result")
    assert [result["samples"] for result in results] == [256, 512, 768, 1024, 1280]
    assert sum(window["samples"] for window in events(whole, name="steps")) == 1280
    assert sum(window["tokens"] for window in events(whole, name="steps")) == 4 * 1280
    assert events(whole)[-1]["samples"] == 1280


def test_the_checkpoint_alone_gives_the_reported_quality(whole: Path) -> None:
    state = torch.load(whole / "checkpoints" / "latest.pt", weights_only=True)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(256, 4, generator=generator)
    y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 0.01 * torch.randn(256, 1, generator=generator)
    error = (x @ state["model"]["1.weight"].T + state["model"]["1.bias"] - y).square().mean()
    assert float(error) == pytest.approx(events(whole, name="eval_result")[-1]["metrics"]["mse"], rel=1e-5)


def test_a_resumed_run_goes_on_exactly(whole: Path, tmp_path: Path) -> None:
    keep = {"params": {"dropout": 0.2}, "checkpoint": {"every_s": 0, "final": True}}
    assert train(tmp_path / "first", **keep, limit_s=0.0).returncode == 0
    assert stop(tmp_path / "first") == ("success", "limit")
    resume = str(tmp_path / "first" / "checkpoints" / "latest.pt")
    done = train(tmp_path / "second", **keep, resume=resume)
    assert done.returncode == 0, done.stderr
    start = events(tmp_path / "second", name="run_start")[0]
    assert (start["resumed_from_step"], start["segment"]) == (10, 2) and start["active_s"] > 0
    assert losses(tmp_path / "first") + losses(tmp_path / "second") == losses(whole)
    ends = [torch.load(run / "checkpoints" / "latest.pt", weights_only=True) for run in (whole, tmp_path / "second")]
    assert all(torch.equal(ends[0]["model"][name], ends[1]["model"][name]) for name in ends[0]["model"])
    assert (tmp_path / "second" / "checkpoints").is_dir() and events(tmp_path / "second")[-1]["samples"] == 1280


def test_a_checkpoint_of_another_plan_is_refused(whole: Path, tmp_path: Path) -> None:
    done = train(tmp_path, params={"dropout": 0.2, "lr": 0.1}, resume=str(whole / "checkpoints" / "latest.pt"))
    assert done.returncode == 1
    assert "has lr = 0.05, not 0.1: resume with the same plan" in events(tmp_path)[-1]["detail"]


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    assert train(tmp_path, checkpoint={"every_s": 1e-9, "final": True}).returncode == 0
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["latest.pt", "previous.pt"]
    stops = events(tmp_path, name="checkpoint_stop")
    assert len(stops) > 2 and stops[-1]["bytes"] == (tmp_path / stops[-1]["path"]).stat().st_size


def test_accumulated_gradients_are_those_of_the_whole_batch(alone: Path, tmp_path: Path) -> None:
    halves = {"max_samples": 512, "train_batch_size": 8, "gradient_accumulation_steps": 2, "num_workers": 3}
    assert train(tmp_path / "two", params=halves).returncode == 0
    assert losses(tmp_path / "two") == pytest.approx(losses(alone), rel=1e-4)
    check_stream(tmp_path / "two")
    assert events(tmp_path / "two")[-1]["samples"] == 512


def test_two_ranks_train_as_one_at_the_same_global_batch(alone: Path, tmp_path: Path) -> None:
    done = launch(tmp_path / "two", 2, params={"max_samples": 512, "train_batch_size": 8}, heartbeat_s=0.05)
    assert done.returncode == 0, done.stderr
    mean = [sum(pair) / 2 for pair in zip(losses(tmp_path / "two", 0), losses(tmp_path / "two", 1))]
    assert mean == pytest.approx(losses(alone), rel=1e-4)
    for rank in (0, 1):
        check_stream(tmp_path / "two", rank)
        checksum = events(tmp_path / "two", rank, "checksum")[0]
        assert (checksum["equal"], checksum["spread"], checksum["uncovered"]) == (True, 0.0, 0)
        record = json.loads((tmp_path / "two" / "exits" / f"rank{rank}.json").read_text())
        assert (record["rank"], record["returncode"], record["signal"]) == (rank, 0, None)
    quality = [events(run, name="eval_result")[-1] for run in (alone, tmp_path / "two")]
    assert quality[0]["samples"] == quality[1]["samples"] == 512
    assert quality[0]["metrics"]["mse"] == pytest.approx(quality[1]["metrics"]["mse"], rel=1e-4)
    windows = [[(w["first"], w["count"]) for w in events(tmp_path / "two", rank, "steps")] for rank in (0, 1)]
    assert windows[0] == windows[1]


def test_gradients_that_are_not_averaged_show_in_the_checksum(tmp_path: Path) -> None:
    done = train(tmp_path, 2, params={"max_samples": 256}, sabotage="gradients_not_averaged")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        checksum = events(tmp_path, rank, "checksum")[0]
        assert checksum["equal"] is False and checksum["spread"] > 0


def test_another_environment_than_planned_ends_every_rank(tmp_path: Path) -> None:
    expect = {"world_size": 2, "precision": "bf16", "device_match": []}
    assert launch(tmp_path, 2, expect=expect).returncode != 0
    for rank in (0, 1):
        last = events(tmp_path, rank)[-1]
        assert (last["status"], last["reason"]) == ("aborted", "environment")
        assert "rank 0: computes in fp32 where the plan says bf16" in last["detail"]
        assert json.loads((tmp_path / "exits" / f"rank{rank}.json").read_text())["returncode"] == 3


def test_training_stops_at_the_first_evaluation_that_meets_the_target(tmp_path: Path) -> None:
    quality = {"metric": "mse", "better": "lower", "target": 1.0}
    assert train(tmp_path, quality=quality, sabotage=None).returncode == 0
    assert stop(tmp_path) == ("success", "target_reached")
    met = [result["met"] for result in events(tmp_path, name="eval_result")]
    assert met == [False] * (len(met) - 1) + [True] and events(tmp_path)[-1]["samples"] < 1280


def test_shuffled_labels_teach_nothing(tmp_path: Path) -> None:
    assert train(tmp_path, sabotage="labels_shuffled").returncode == 0
    assert events(tmp_path, name="eval_result")[-1]["metrics"]["mse"] > 5


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    assert train(tmp_path, params={"break": "nan"}).returncode == 0
    assert stop(tmp_path) == ("aborted", "nonfinite_loss")
    assert "nan" in losses(tmp_path)  # a word, not a bare NaN
    check_stream(tmp_path)


def test_steady_steps_without_data_or_evaluation(tmp_path: Path) -> None:
    params = {"optimizer": "sgd", "lr": 0.001, "precision": "bf16", "clip_grad_norm": 1.0}
    assert train(tmp_path, params=params, mode="throughput").returncode == 0
    assert stop(tmp_path) == ("success", "max_steps")
    assert [(w["first"], w["count"]) for w in events(tmp_path, name="steps")] == [(1, 5), (6, 10), (16, 10)]
    assert events(tmp_path, name="eval_result") == []
    assert events(tmp_path)[0]["precision"]["compute"] == "bf16"


def test_the_collector_leaves_what_lives_after_the_first_step_alone(tmp_path: Path) -> None:
    params = {"break": "say what the collector leaves", "throughput_steps": 3, "throughput_warmup_steps": 1}
    done = train(tmp_path, params=params, mode="throughput")
    assert done.returncode == 0
    first, *rest = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("left:")]
    assert len(rest) == 3
    # Once: what the steps themselves leave is the collector's as ever. The model's own objects are thousands.
    assert all(count > first + 1000 and count <= rest[0] for count in rest)


@pytest.mark.parametrize(
    ("over", "reason", "sentence"),
    [
        ({"params": {"break": "raise"}}, "exception", "ValueError: the disk is on fire"),
        ({"params": {"break": "raise", "num_workers": 2}}, "exception", "ValueError: the disk is on fire"),
        (
            {"sabotage": "coffee"}, "config",
            "sabotage 'coffee' is not one of lr_zero, labels_shuffled, gradients_not_averaged",
        ),
        ({"params": {"log_freq": 0}}, "config", "log_freq = 0 must be at least 1"),
        (
            {"params": {"lr": -1.0}}, "config",
            "optimizer = 'adamw' does not take its parameters (Invalid learning rate: -1.0): change them",
        ),
        ({"quality": {"metric": "bleu", "better": "higher", "target": 1}}, "config", "Task.evaluate gives no 'bleu'"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_in_the_last_event(
    tmp_path: Path, over: dict[str, Any], reason: str, sentence: str
) -> None:
    done = train(tmp_path, **over)
    assert done.returncode == 1 and ("Traceback" in done.stderr) == (reason == "exception")
    assert stop(tmp_path) == ("aborted", reason) and events(tmp_path)[-1]["detail"].startswith(sentence)
    assert events(tmp_path)[0]["event"] == "header"


def test_a_device_that_is_not_there_is_an_environment_not_a_slow_pass(tmp_path: Path) -> None:
    done = train(tmp_path, device={"type": "xpu", "backend": "gloo", "plugin": ""})
    assert done.returncode == 3 and stop(tmp_path) == ("aborted", "environment")
    assert events(tmp_path)[0]["device"]["name"] == ""


def wait_for(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.05)


def test_a_rank_that_hangs_shows_its_stacks_and_ends_properly_on_sigterm(tmp_path: Path) -> None:
    run_json = write_run(tmp_path, params={"break": "sleep"}, heartbeat_s=0.1)
    argv = [sys.executable, str(ROOT / "suite" / "drivers" / "rank.py"), "train.py"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment(run_json)) as wrapper:
        stream = tmp_path / "events" / "rank0.jsonl"
        wait_for(lambda: stream.exists() and '"phase":"train"' in stream.read_text())
        os.kill(events(tmp_path)[0]["pid"], signal.SIGUSR1)
        log = tmp_path / "logs" / "rank0.log"
        wait_for(lambda: "in loss" in log.read_text())
        wrapper.terminate()
        assert wrapper.wait(timeout=15) == 128 + signal.SIGTERM
    assert stop(tmp_path) == ("aborted", "signal") and "SIGTERM in phase train" in events(tmp_path)[-1]["detail"]
    assert json.loads((tmp_path / "exits" / "rank0.json").read_text())["returncode"] == 143


SCRIPTS = {
    "import sys; print('hello'); sys.exit(7)": (7, 7, None),
    "import os; os.kill(os.getpid(), 9)": (137, 137, 9),
}


@pytest.mark.parametrize(("script", "ends"), SCRIPTS.items())
def test_the_wrapper_records_how_its_child_ended(
    tmp_path: Path, script: str, ends: tuple[int, int, int | None]
) -> None:
    run_json = write_run(tmp_path)
    (tmp_path / "child.py").write_text(script)
    argv = [sys.executable, str(ROOT / "suite" / "drivers" / "rank.py"), "child.py"]
    env = environment(run_json, RANK="3", WORLD_SIZE="4")
    done = subprocess.run(argv, cwd=tmp_path, env=env, timeout=30, check=False)
    record = json.loads((tmp_path / "exits" / "rank3.json").read_text())
    assert (done.returncode, record["returncode"], record["signal"]) == ends
    assert record["ended_wall"] >= record["started_wall"] and record["pid"] > 0
    assert (tmp_path / "logs" / "rank3.log").exists()


def test_the_child_dies_with_its_wrapper(tmp_path: Path) -> None:
    run_json = write_run(tmp_path)
    (tmp_path / "child.py").write_text("import os, time; print(os.getpid()); time.sleep(60)")
    argv = [sys.executable, str(ROOT / "suite" / "drivers" / "rank.py"), "child.py"]
    log = tmp_path / "logs" / "rank0.log"
    with subprocess.Popen(argv, cwd=tmp_path, env=environment(run_json)) as wrapper:
        wait_for(lambda: log.exists() and log.read_text().strip())
        wrapper.kill()
        wrapper.wait(timeout=10)
    child = Path("/proc") / log.read_text().strip()
    wait_for(lambda: not child.exists() or "State:\tZ" in (child / "status").read_text(), 10)


def test_the_wrapper_without_a_run_says_so(tmp_path: Path) -> None:
    env = environment(tmp_path / "absent.json")
    argv = [sys.executable, str(ROOT / "suite" / "drivers" / "rank.py"), "child.py"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 4 and "absent.json cannot be read as run.json" in done.stderr
    assert "Traceback" not in done.stderr
