"""The TensorFlow driver trains for real: alone and as two workers, to the ends that a run can have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suite.rank_stream import read_stream
from tests.launched_toy import events, has_own_data, log, losses, stop
from tests.tensorflow2_toy import CASE_DIR, PARAMS, drive, mini, needs_tensorflow

pytestmark = [pytest.mark.slow, needs_tensorflow]

FINAL = {"every_s": 0, "final": True}
TOP1 = {"metric": "top1", "better": "higher", "target": 0.95}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of 80 steps with dropout, to max_samples, with its final checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    assert drive(folder, PARAMS | {"dropout": 0.2}, checkpoint=FINAL, heartbeat_s=0.05) == 0, log(folder)
    return folder


def test_a_run_tells_every_event(whole: Path) -> None:
    read_stream(whole / "events/rank0.jsonl", 0)
    names = [event["event"] for event in events(whole) if event["event"] != "heartbeat"]
    assert names[:5] == ["header", "init_start", "init_stop", "run_start", "epoch_start"]
    assert names[-3:] == ["memory", "checksum", "run_stop"]
    assert stop(whole) == ("success", "max_samples") and events(whole)[-1]["samples"] == 1280
    header = events(whole)[0]
    assert header["framework"]["name"] == "tensorflow2" and header["precision"]["compute"] == "fp32"
    assert [result["samples"] for result in events(whole, name="eval_result")] == [256, 512, 768, 1024, 1280]
    for window in events(whole, name="steps"):
        assert sum(window["step_s"]) == pytest.approx(window["window_s"], rel=0.01, abs=1e-3)


def test_a_resumed_run_goes_on_exactly(whole: Path, tmp_path: Path) -> None:
    values, path = PARAMS | {"dropout": 0.2}, str(tmp_path / "first/checkpoints/latest.pt")
    assert drive(tmp_path / "first", values, checkpoint=FINAL, limit_s=0.0) == 0
    assert stop(tmp_path / "first") == ("success", "limit")
    assert drive(tmp_path / "second", values, checkpoint=FINAL, resume=path) == 0, log(tmp_path / "second")
    start = events(tmp_path / "second", name="run_start")[0]
    assert (start["resumed_from_step"], start["segment"]) == (10, 2) and start["active_s"] > 0
    assert losses(tmp_path / "first") + losses(tmp_path / "second") == losses(whole)
    with np.load(whole / "checkpoints/latest.pt") as one, np.load(tmp_path / "second/checkpoints/latest.pt") as other:
        names = set(one.files) - {"__facts__"}
        assert {"weight", "bias", "seen", "first/weight"} <= names
        assert all(np.array_equal(one[name], other[name]) for name in names)


def test_the_checkpoint_alone_gives_the_reported_quality(whole: Path, tmp_path: Path) -> None:
    checkpoint = str(whole / "checkpoints/latest.pt")
    assert drive(tmp_path, PARAMS | {"dropout": 0.2}, mode="evaluate", resume=checkpoint) == 0, log(tmp_path)
    assert stop(tmp_path) == ("success", "evaluated")
    (again,) = events(tmp_path, name="eval_result")
    reported = events(whole, name="eval_result")[-1]
    assert again["metrics"] == reported["metrics"] and again["samples"] == 1280
    assert not events(tmp_path, name="steps")


@pytest.mark.nightly
def test_random_data_is_measured_where_there_is_no_folder(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS, mode="throughput") == 0, log(tmp_path)
    assert stop(tmp_path) == ("success", "max_steps")
    assert [window["count"] for window in events(tmp_path, name="steps")] == [5, 10, 10]
    assert not events(tmp_path, name="eval_result")


def test_two_workers_train_as_one_at_the_same_global_batch(tmp_path: Path) -> None:
    assert drive(tmp_path / "one", PARAMS | {"max_samples": 512}) == 0
    halves = PARAMS | {"max_samples": 512, "train_batch_size": 8}
    assert drive(tmp_path / "two", halves, 2) == 0, log(tmp_path / "two")
    mean = [sum(pair) / 2 for pair in zip(losses(tmp_path / "two", 0), losses(tmp_path / "two", 1), strict=True)]
    assert mean == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    assert has_own_data(tmp_path / "two")
    for rank in (0, 1):
        assert events(tmp_path / "two", rank, "checksum")[0]["equal"] is True
    # Broken on purpose, and told.
    assert drive(tmp_path / "apart", halves, 2, sabotage="gradients_not_averaged") == 0
    apart = events(tmp_path / "apart", 1, "checksum")[0]
    assert apart["equal"] is False and apart["spread"] > 0


@pytest.mark.nightly
def test_a_worker_that_fails_ends_the_others(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS | {"break": "raise"}, 2) == 1
    assert stop(tmp_path, 1) == ("aborted", "exception")
    assert "the disk is on fire" in events(tmp_path, 1)[-1]["detail"]
    assert stop(tmp_path, 0)[0] == "aborted"


@pytest.mark.nightly
def test_accumulated_gradients_are_those_of_the_whole_batch_also_where_nothing_is_compiled(tmp_path: Path) -> None:
    assert drive(tmp_path / "one", PARAMS | {"max_samples": 256, "optimizer": "sgd", "clip_grad_norm": 0.5}) == 0
    halves = {"max_samples": 256, "optimizer": "sgd", "clip_grad_norm": 0.5}
    halves |= {"train_batch_size": 8, "gradient_accumulation_steps": 2, "run_eagerly": True}
    halves |= {"distribution_strategy": "one_device", "all_reduce_alg": "auto"}
    assert drive(tmp_path / "two", PARAMS | halves) == 0, log(tmp_path / "two")
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.nightly
def test_a_loss_that_is_no_number_and_a_tpu_that_is_not_there(tmp_path: Path) -> None:
    assert drive(tmp_path / "nan", PARAMS | {"break": "nan"}) == 0
    assert stop(tmp_path / "nan") == ("aborted", "nonfinite_loss")
    assert drive(tmp_path / "tpu", PARAMS | {"tpu": "local", "distribution_strategy": "tpu"}) == 1
    assert stop(tmp_path / "tpu") == ("aborted", "environment")
    assert "there is no such TPU here" in events(tmp_path / "tpu")[-1]["detail"]


@pytest.mark.nightly
def test_a_model_that_knows_no_training_mode_says_so_before_it_trains(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS, sabotage="eval_in_train_mode") == 1
    assert stop(tmp_path) == ("aborted", "config") and not events(tmp_path, name="run_start")
    assert "a Plane is not called with `training`: break the run in another way" in events(tmp_path)[-1]["detail"]


def test_mini_reaches_its_target_alone(tmp_path: Path) -> None:
    assert drive(tmp_path, mini(1), case=CASE_DIR, quality=TOP1) == 0, log(tmp_path)
    assert stop(tmp_path) == ("success", "target_reached")


@pytest.mark.nightly
def test_mini_reaches_its_target_with_two_workers_and_their_parameters_agree(tmp_path: Path) -> None:
    assert drive(tmp_path, mini(2), 2, case=CASE_DIR, quality=TOP1) == 0, log(tmp_path)
    for rank in (0, 1):
        assert stop(tmp_path, rank) == ("success", "target_reached")
        assert events(tmp_path, rank, "checksum")[0]["equal"] is True
