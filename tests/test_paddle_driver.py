"""The PaddlePaddle driver on one rank: what a run tells, how it goes on, what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.rank_stream import read_stream
from tests.launched_toy import events, log, losses, stop
from tests.paddle_toy import PARAMS, drive, needs_paddle

pytestmark = needs_paddle

FINAL = {"every_s": 0, "final": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of 80 steps with dropout, to max_samples, with its final checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    assert drive(folder, PARAMS | {"dropout": 0.2, "num_workers": 1}, checkpoint=FINAL, heartbeat_s=0.05) == 0, log(
        folder
    )
    return folder


def test_a_run_tells_every_event(whole: Path) -> None:
    read_stream(whole / "events/rank0.jsonl", 0)
    names = [event["event"] for event in events(whole) if event["event"] != "heartbeat"]
    assert names[:5] == ["header", "init_start", "init_stop", "run_start", "epoch_start"]
    assert names[-3:] == ["memory", "checksum", "run_stop"]
    assert stop(whole) == ("success", "max_samples") and events(whole)[-1]["samples"] == 1280
    header = events(whole)[0]
    assert header["framework"]["name"] == "paddle" and header["precision"]["compute"] == "fp32"
    assert events(whole, name="init_stop")[0]["parameters"] == 5
    assert [result["samples"] for result in events(whole, name="eval_result")] == [256, 512, 768, 1024, 1280]
    assert events(whole, name="checksum")[0]["equal"] is None
    assert losses(whole)[-1] < losses(whole)[0] / 4
    for window in events(whole, name="steps"):
        assert sum(window["step_s"]) == pytest.approx(window["window_s"], rel=0.01, abs=1e-3)


@pytest.mark.slow
def test_a_resumed_run_goes_on_exactly(whole: Path, tmp_path: Path) -> None:
    values, path = PARAMS | {"dropout": 0.2, "num_workers": 1}, str(tmp_path / "first/checkpoints/latest.pt")
    assert drive(tmp_path / "first", values, checkpoint=FINAL, limit_s=0.0) == 0
    assert stop(tmp_path / "first") == ("success", "limit")
    assert drive(tmp_path / "second", values, checkpoint=FINAL, resume=path) == 0, log(tmp_path / "second")
    start = events(tmp_path / "second", name="run_start")[0]
    assert (start["resumed_from_step"], start["segment"]) == (10, 2) and start["active_s"] > 0
    assert losses(tmp_path / "first") + losses(tmp_path / "second") == losses(whole)
    with np.load(whole / "checkpoints/latest.pt") as one, np.load(tmp_path / "second/checkpoints/latest.pt") as other:
        names = set(one.files) - {"rest"}
        assert {"model/1.weight", "model/1.bias"} <= names and any(name.startswith("stepper/") for name in names)
        assert all(np.array_equal(one[name], other[name]) for name in names)
    assert drive(tmp_path / "third", values | {"lr": 0.1}, resume=path) != 0
    assert "lr = 0.05, not 0.1" in events(tmp_path / "third")[-1]["detail"]


@pytest.mark.slow
def test_a_saved_model_is_worth_what_its_run_said(whole: Path, tmp_path: Path) -> None:
    path = str(whole / "checkpoints/latest.pt")
    assert drive(tmp_path, PARAMS | {"dropout": 0.2}, mode="evaluate", resume=path) == 0, log(tmp_path)
    again, last = events(tmp_path, name="eval_result")[0], events(whole, name="eval_result")[-1]
    assert again["metrics"] == last["metrics"] and again["samples"] == last["samples"]
    assert stop(tmp_path) == ("success", "evaluated")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"precision": "fp16"}, "precision = 'fp16' is not one of fp32, tf32, bf16"),
        ({"optimizer": "lamb"}, "optimizer = 'lamb' is not one of adamw, adam, sgd"),
        ({"compile": True}, "compile = True: the paddle driver has False alone"),
    ],
)
def test_what_the_driver_does_not_do_it_refuses(tmp_path: Path, change: dict[str, object], word: str) -> None:
    assert drive(tmp_path, PARAMS | change) != 0
    assert stop(tmp_path) == ("aborted", "config")
    assert word in events(tmp_path)[-1]["detail"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_precision_that_is_not_in_force_ends_the_run(tmp_path: Path) -> None:
    """Paddle leaves bf16 autocast away on a host, and only warns."""
    assert drive(tmp_path, PARAMS | {"precision": "bf16"}) != 0
    assert stop(tmp_path) == ("aborted", "environment")
    assert "computes in fp32 where the plan says bf16" in events(tmp_path)[-1]["detail"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS | {"break": "nan"}, checkpoint=FINAL) == 0, log(tmp_path)
    assert stop(tmp_path) == ("aborted", "nonfinite_loss") and "nan" in losses(tmp_path)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_throughput_counts_its_steps_on_random_data(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS, mode="throughput", data_dir=None) == 0, log(tmp_path)
    assert [window["count"] for window in events(tmp_path, name="steps")] == [5, 10, 10]
    assert stop(tmp_path) == ("success", "max_steps") and not events(tmp_path, name="eval_result")
