"""The PaddlePaddle driver on two ranks: one model, told from two, and a rank that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.launched_toy import events, has_own_data, log, losses, stop
from tests.paddle_toy import PARAMS, drive, needs_paddle

pytestmark = [pytest.mark.slow, needs_paddle]

HALVES = PARAMS | {"train_batch_size": 8, "max_samples": 512}


def test_two_ranks_train_as_one_at_the_same_global_batch(tmp_path: Path) -> None:
    """SGD and two micro-batches: an exchange that is left out, or made too early, shows in the losses."""
    values = {"optimizer": "sgd", "momentum": 0.9, "gradient_accumulation_steps": 2, "max_samples": 512}
    assert drive(tmp_path / "one", PARAMS | values) == 0, log(tmp_path / "one")
    assert drive(tmp_path / "two", PARAMS | values | {"train_batch_size": 8}, 2) == 0, log(tmp_path / "two")
    pairs = zip(losses(tmp_path / "two", 0), losses(tmp_path / "two", 1), strict=True)
    assert [sum(pair) / 2 for pair in pairs] == pytest.approx(losses(tmp_path / "one"), rel=1e-3)
    assert has_own_data(tmp_path / "two")
    for rank in (0, 1):
        found = events(tmp_path / "two", rank, "checksum")[0]
        assert found["equal"] is True and found["spread"] == 0 and found["groups"][0]["holders"] == [0, 1]
        assert events(tmp_path / "two", rank)[0]["world_size"] == 2


@pytest.mark.nightly
def test_running_statistics_are_no_weights(tmp_path: Path) -> None:
    """Each rank has its own; the saved model is the one that was evaluated, and the checksum is of weights alone."""
    final, values = {"every_s": 0, "final": True}, HALVES | {"norm": True}
    assert drive(tmp_path / "run", values, 2, checkpoint=final) == 0, log(tmp_path / "run")
    assert events(tmp_path / "run", name="init_stop")[0]["parameters"] == 5 + 8
    assert events(tmp_path / "run", 1, "checksum")[0]["equal"] is True
    path = str(tmp_path / "run/checkpoints/latest.pt")
    assert drive(tmp_path / "again", values, 2, mode="evaluate", resume=path) == 0, log(tmp_path / "again")
    last = events(tmp_path / "run", name="eval_result")[-1]["metrics"]
    assert events(tmp_path / "again", name="eval_result")[0]["metrics"] == last


def test_gradients_that_are_not_averaged_are_found(tmp_path: Path) -> None:
    assert drive(tmp_path, HALVES, 2, sabotage="gradients_not_averaged") == 0, log(tmp_path)
    for rank in (0, 1):
        found = events(tmp_path, rank, "checksum")[0]
        assert found["equal"] is False and found["spread"] > 0


@pytest.mark.nightly
def test_shuffled_labels_teach_nothing(tmp_path: Path) -> None:
    assert drive(tmp_path / "good", PARAMS) == 0, log(tmp_path / "good")
    assert drive(tmp_path / "bad", PARAMS, sabotage="labels_shuffled") == 0, log(tmp_path / "bad")
    good, bad = (events(tmp_path / name, name="eval_result")[-1]["metrics"]["mse"] for name in ("good", "bad"))
    assert bad > 4 * good


@pytest.mark.nightly
def test_a_rank_that_fails_ends_the_other(tmp_path: Path) -> None:
    assert drive(tmp_path, PARAMS | {"break": "raise", "train_batch_size": 8}, 2) != 0
    assert stop(tmp_path, 1) == ("aborted", "exception") and "on fire" in events(tmp_path, 1)[-1]["detail"]
    ends = [json.loads((tmp_path / f"exits/rank{rank}.json").read_text())["returncode"] for rank in (0, 1)]
    assert ends[0] != 0 and ends[1] == 1  # Paddle itself aborts a rank whose partner has left
    assert not any(event.get("status") == "success" for event in events(tmp_path, 0))
