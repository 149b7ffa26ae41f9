"""MobileNetV2 through the driver: ranks, accumulation, resuming, photographs, random bytes, and whole runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.pytorch.device import Device
from tests.case_mobilenetv2 import CASE_DIR, TINY, drive, params, task, top1, write_photographs
from tests.one_case import losses

KEEP = {"checkpoint": {"every_s": 0, "final": True}}
SHORT = params("mini", threads=1, dropout=0.0, train_batch_size=32, max_samples=896, eval_every_samples=448, lr=0.05)
"""Fourteen steps of two halves, evaluated after seven."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Two ranks, each with its half."""
    folder = tmp_path_factory.mktemp("two") / "run"
    return folder, drive(folder, SHORT, 2, **KEEP)


HALVES = SHORT | {"gradient_accumulation_steps": 2}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One rank that takes the same halves one after the other."""
    return drive(tmp_path_factory.mktemp("one") / "run", HALVES, **KEEP)[0]


def test_two_ranks_train_as_one_that_accumulates_the_same_halves(shared: Any, alone: list[Any]) -> None:
    _, (first, second) = shared
    mean = np.mean([losses(first), losses(second)], axis=0)
    assert len(mean) == 14
    np.testing.assert_allclose(mean[:4], losses(alone)[:4], rtol=1e-4)
    np.testing.assert_allclose(mean, losses(alone), rtol=0.02)


def test_a_resumed_run_goes_on_exactly(alone: list[Any], tmp_path: Path) -> None:
    first = drive(tmp_path / "first", HALVES, limit_s=0.0, **KEEP)[0]
    assert len(losses(first)) == 7
    resume = str(tmp_path / "first/checkpoints/latest.pt")
    second = drive(tmp_path / "second", HALVES, resume=resume, **KEEP)[0]
    assert losses(first) + losses(second) == losses(alone)
    assert top1(first) + top1(second) == top1(alone)


def test_two_ranks_end_with_equal_parameters(shared: Any) -> None:
    _, streams = shared
    checks = [next(event for event in stream if event["event"] == "checksum") for stream in streams]
    assert [check["equal"] for check in checks] == [True, True]
    assert checks[0]["groups"][0]["count"] == 162_458


@pytest.mark.slow
@pytest.mark.nightly
def test_all_ranks_evaluate_rank_0s_statistics(shared: Any) -> None:
    """So the checkpoint, which holds them, gives the reported accuracy when it is evaluated alone."""
    folder, streams = shared
    one = task(params("mini"))
    one.prepare_data()
    model = one.build()
    model.load_state_dict(torch.load(folder / "checkpoints/latest.pt", weights_only=True)["model"])
    with torch.no_grad():
        correct, shown = one.evaluate(model.eval())["top1"]
    assert shown == 500
    assert correct / shown == top1(streams[0])[-1]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_driver_trains_and_evaluates_photographs(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    write_photographs(tmp_path / "data")
    values = params(**{**TINY, "threads": 1, "num_workers": 2, "max_samples": 960, "eval_every_samples": 480,
                       "eval_batch_size": 8, "lr": 0.02, "lr_step_every": 10, "log_freq": 10})  # fmt: skip
    events = drive(tmp_path / "run", values, data_dir=str(tmp_path / "data"), preset="full")[0]
    assert [event["samples"] for event in events if event["event"] == "eval_result"] == [480, 960]
    # Either evaluation: batches of eight move the norms, and how they round is another matter on another processor.
    assert max(top1(events)) >= 0.5, "the colours of the classes are far apart: chance is 0.25"
    rates = [event["lr"] for event in events if event["event"] == "steps"]
    assert rates[1] == pytest.approx(0.02 * 0.98)


def test_the_driver_measures_full_on_random_bytes(tmp_path: Path) -> None:
    values = params(**{**TINY, "threads": 1, "throughput_steps": 4, "throughput_warmup_steps": 2})
    events = drive(tmp_path / "run", values, mode="throughput", preset="full")[0]
    windows = [event for event in events if event["event"] == "steps"]
    assert sum(window["samples"] for window in windows) == 6 * 8
    assert len(set(losses(events))) == 6
    start = next(event for event in events if event["event"] == "run_start")
    assert start["flops_per_sample"] == task(values).flops_per_sample()[0]


@pytest.mark.parametrize("on", [True, False])
def test_convolutions_are_tuned_where_the_plan_says_so(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not on)
    Device.autotune(SimpleNamespace(type="cuda"), on)
    assert torch.backends.cudnn.benchmark is on
    Device.autotune(SimpleNamespace(type="acme"), not on)
    assert torch.backends.cudnn.benchmark is on, "a chip without the switch changes nothing"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, changes, more", [("lr0", {"lr": 0.0}, {}), ("labels", {}, {"sabotage": "labels_shuffled"})]
)
def test_a_run_broken_on_purpose_stays_far_from_the_target(
    name: str, changes: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    events = drive(tmp_path / name, params("mini", threads=1, **changes), **more)[0]
    assert max(top1(events)) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.nightly)])
def test_a_healthy_run_reaches_the_target(seed: int, tmp_path: Path) -> None:
    target = tomllib.loads((CASE_DIR / "case.toml").read_text())["preset"]["mini"]["target"]["value"]
    quality = {"metric": "top1", "better": "higher", "target": target}
    events = drive(tmp_path / "run", params("mini", threads=1), seed=seed, quality=quality)[0]
    assert top1(events)[-1] >= target
    assert events[-1]["reason"] == "target_reached"
