"""ViViT trains: shards, resuming, bf16, an exact evaluation, and broken runs that learn nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.case_vivit import CASE, CASE_DIR, TINY, drive, one_thread, params, task, top1, write_arrays
from tests.one_case import losses


@pytest.fixture(autouse=True)
def alone() -> Any:
    """One thread."""
    with one_thread():
        yield


def made(seed: int = 1, rank: int = 0, world: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A task of mini with its data, and its model."""
    torch.manual_seed(seed)
    one = task(params("mini", **changes), seed=seed, rank=rank, world=world)
    model = one.build()
    one.prepare_data()
    return one, model


def gradients(model: Any) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def steps(
    one: Any, model: Any, count: int, *, lr: float = 2e-3, shuffled: bool = False, bf16: bool = False
) -> list[float]:
    """The losses of `count` plain steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    found, epoch = [], 0
    while len(found) < count:
        epoch += 1
        for batch in one.train_batches(epoch):
            batch = one.shuffle_labels(batch, generator) if shuffled else batch
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = one.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
            if len(found) == count:
                break
    return found


# Shards


def test_two_ranks_have_the_gradient_of_one_at_the_same_global_batch() -> None:
    one, model = made()
    one.loss(model, next(iter(one.train_batches(1)))).backward()
    whole = gradients(model)
    model.zero_grad()
    for rank in range(2):
        share, _ = made(rank=rank, world=2, train_batch_size=16)
        (share.loss(model, next(iter(share.train_batches(1)))) / 2).backward()
    for mine, expected in zip(gradients(model), whole):
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-6)


# The evaluation


class Oracle(torch.nn.Module):
    """Scores that a function of the clips gives."""

    def __init__(self, scores: Any) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        return self.scores(clips)


def test_who_knows_all_scores_all_and_who_answers_nan_scores_nothing() -> None:
    one, _ = made(eval_batch_size=64)
    shown = list(one.clips.eval_batches(100))
    answers = {clip.tobytes(): label for batch in shown for clip, label in zip(batch["clips"], batch["labels"])}

    def knows(clips: torch.Tensor) -> torch.Tensor:
        found = [int(answers.get(clip.numpy().tobytes(), 0)) for clip in clips]
        return torch.nn.functional.one_hot(torch.tensor(found), 8).float()

    assert one.evaluate(Oracle(knows)) == {"top1": (400, 400)}
    assert one.evaluate(Oracle(lambda clips: knows(clips) * torch.nan)) == {"top1": (0, 400)}
    assert one.evaluate(Oracle(lambda clips: torch.eye(8)[0].expand(len(clips), 8))) == {"top1": (50, 400)}


def test_uneven_shares_add_up() -> None:
    one, model = made()
    steps(one, model, 8)
    model.eval()
    with torch.no_grad():
        correct, shown = one.evaluate(model)["top1"]
        for world, size in ((3, 100), (7, 33)):
            shares = [
                made(rank=rank, world=world, eval_batch_size=size)[0].evaluate(model)["top1"] for rank in range(world)
            ]
            assert tuple(map(sum, zip(*shares))) == (correct, shown)
    assert shown == 400 and 0 < correct < 400


# Learning, and not learning


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loss_falls_with_true_labels_alone() -> None:
    found = {
        "true": steps(*made(), 80),
        "shuffled": steps(*made(), 80, shuffled=True),
        "still": steps(*made(), 10, lr=0.0),
    }
    ends = {name: float(np.mean(values[-10:])) for name, values in found.items()}
    assert ends["true"] < 1.9, "the logarithm of 8 is 2.08"
    assert ends["shuffled"] > 2.0
    assert ends["still"] > 2.0


def test_bf16_learns_as_fp32_does() -> None:
    """Each of the first twelve losses within 3 %."""
    whole, rounded = (steps(*made(), 12, bf16=bf16) for bf16 in (False, True))
    np.testing.assert_allclose(rounded, whole, rtol=0.03)
    assert rounded != whole


# Through the driver


def test_fixed_steps_on_videos_resumed_in_the_middle_are_the_same_run(tmp_path: Path) -> None:
    """Eight steps over fifteen videos, four at a time, are two epochs. By a thread, then by processes in two parts."""
    folder = str(write_arrays(tmp_path / "data", frames=30))
    common = TINY | {"threads": 1, "num_workers": 2, "max_steps": 8, "log_freq": 3, "lr": 1e-3}
    keep = {"checkpoint": {"every_s": 0, "final": True}, "preset": "full", "data_dir": folder}
    whole = drive(tmp_path / "whole", params(**common, loader="thread"), **keep)
    first = drive(tmp_path / "first", params(**common), limit_s=0.0, **keep)
    latest = str(tmp_path / "first/checkpoints/latest.pt")
    second = drive(tmp_path / "second", params(**common), resume=latest, **keep)
    assert (len(losses(first)), len(losses(whole))) == (3, 8)
    assert losses(first) + losses(second) == losses(whole)
    assert top1(second) == top1(whole)
    assert [event["step"] for event in whole if event["event"] == "eval_result"] == [8]
    assert [event["epoch"] for event in whole if event["event"] == "epoch_start"] == [1, 2]
    assert whole[-1]["reason"] == second[-1]["reason"] == "max_steps"
    start = next(event for event in whole if event["event"] == "run_start")
    assert (start["flops_per_sample"], start["flops_formula"]) == task(params(**TINY)).flops_per_sample()


def test_random_clips_are_measured_without_data() -> None:
    one = task(params(**TINY))
    stream = one.synthetic_batches()
    first, second = next(stream), next(stream)
    assert first["clips"].shape == (4, 4, 32, 32, 3)
    assert first["clips"].dtype == torch.uint8
    assert not torch.equal(first["clips"], second["clips"])
    assert torch.isfinite(one.loss(one.build(), first))


# The folder


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name


def test_slots_are_those_that_case_toml_declares() -> None:
    declared = tomllib.loads((CASE_DIR / "case.toml").read_text())["extern"]["slots"]
    slots = CASE.train.Classify.default_slots()
    assert {*slots, "optimizer"} == set(declared)
    assert slots["attention"] is CASE.model.standard_attention
