"""Faster R-CNN trains: one gradient however many ranks, an exact resume, and broken runs that find nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.pytorch.schedule import Schedule
from tests import warm_python
from tests.case_faster_rcnn import CASE_DIR, FEW, case, losses, params, task

ROOT = CASE_DIR.parents[3]
SMALL = {**FEW, "train_batch_size": 8, "log_freq": 1}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(seed: int = 1, rank: int = 0, world: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, and its model."""
    torch.manual_seed(seed)
    one = task(params("mini", **{**SMALL, **changes}), seed=seed, rank=rank, world=world)
    model = one.build()
    one.prepare_data()
    return one, model


def gradient(one: Any, model: Any, batch: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    one.loss(model, batch).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


# The gradient


def test_two_ranks_have_the_gradient_of_one() -> None:
    """At an equal global batch; the lots of each image do not depend on the rank that has it."""
    one, model = made()
    whole = gradient(one, model, next(one.train_batches(1)))
    halves = []
    for rank in (0, 1):
        share, _ = made(rank=rank, world=2, train_batch_size=4)
        halves.append(gradient(share, model, next(share.train_batches(1))))
    for name, value in whole.items():
        mean = (halves[0][name] + halves[1][name]) / 2
        torch.testing.assert_close(mean, value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert any(not torch.allclose(halves[0][name], value, rtol=0.1) for name, value in whole.items())


def test_every_trained_weight_learns_and_frozen_ones_do_not() -> None:
    one, model = made(frozen_stages=2)
    loss = one.loss(model, next(one.train_batches(1)))
    loss.backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is not None) == weight.requires_grad, name
        assert weight.grad is None or bool(weight.grad.abs().sum() > 0), name
    groups = one.parameter_groups(model)
    assert len(groups) == 1
    assert len(groups[0]["params"]) == sum(weight.requires_grad for weight in model.parameters())


def test_an_image_without_boxes_teaches_that_there_is_nothing() -> None:
    one, model = made()
    batch = next(one.train_batches(1))
    batch["labels"].zero_()
    batch["boxes"].zero_()
    objectness, anchors, classes, regions = losses(model, batch).mean(0)
    assert anchors.item() == regions.item() == 0
    assert objectness.item() > 0 and classes.item() > 0
    assert bool(torch.isfinite(torch.cat([value.flatten() for value in gradient(one, model, batch).values()])).all())


def test_bf16_agrees_with_fp32() -> None:
    """The loss within 2 %, the gradient's direction within a cosine of 0.95: which regions are drawn may differ."""
    one, model = made()
    batch = next(one.train_batches(1))
    exact = gradient(one, model, batch)
    expected = one.loss(model, batch)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = one.loss(model, batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=0.02)
    for part in ("backbone", "pyramid", "rpn", "head"):
        pairs = [(w.grad, exact[name]) for name, w in model.named_parameters() if name.startswith(part)]
        rough, fine = (torch.cat([pair[i].flatten() for pair in pairs]) for i in (0, 1))
        assert float(torch.cosine_similarity(rough, fine, dim=0)) > 0.95, part


# The evaluation


def test_shares_of_any_number_of_ranks_give_one_precision() -> None:
    one, model = made()
    with torch.no_grad():
        model.head.scores.bias += torch.linspace(0, 3, 11)  # untrained, but it finds something
        model.eval()
        whole = one.combine([one.evaluate(model)])
        assert 0 < whole["mAP50"] < 1
        for world, size in ((2, 3), (3, 2)):
            shares = [made(rank=rank, world=world, eval_batch_size=size)[0].evaluate(model) for rank in range(world)]
            assert sorted(map(len, shares)) != [len(shares[0])] * world
            assert one.combine(shares) == pytest.approx(whole, rel=1e-6)


def test_detections_are_the_best_real_ones() -> None:
    one, model = made()
    with torch.no_grad():
        model.head.scores.bias += torch.linspace(0, 3, 11)
        found = [record for _, record in one.evaluate(model.eval())]
    for record in found:
        assert len(record.scores) <= 20
        assert bool((np.diff(record.scores) <= 0).all()) and record.scores.min() > 0.05
        assert record.labels.min() >= 1 and record.labels.max() <= 10
        assert record.boxes.min() >= 0 and record.boxes.max() <= 64


# The schedule


def test_milestones_are_counted_in_samples_after_a_warm_up() -> None:
    values = params()
    schedule = Schedule(values, 16)
    epoch = 117_266 / 16
    assert schedule(0) == pytest.approx(1e-3) and schedule(499) == pytest.approx(0.5)
    assert [schedule(round(epoch * at)) for at in (1, 15.9, 16.1, 21.9, 22.1)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])


# Through the driver


def drive(folder: Path, values: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """The events of train.py, run as a rank is."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    spec = {
        "schema": 1, "run": "faster-rcnn-test", "id": "faster_rcnn-pytorch-cpu-host-mini-1x1", "n": 1, "attempt": 1,
        "mode": "converge", "preset": "mini", "params": values, "seed": 1, "topology": {"nnodes": 1, "nproc": 1},
        "quality": {"metric": "mAP", "better": "higher", "target": 0.5}, "limit_s": 300,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": 1, "precision": "fp32", "device_match": []}, "machine": "host", "data_dir": None,
        "case_dir": str(CASE_DIR), "extern_dir": None, "runtime_dir": None, "slots": [], "run_dir": str(folder),
        "checkpoint": {"every_s": 0, "final": False}, "resume": None, "heartbeat_s": 5, "capabilities": {},
        "sabotage": None,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(spec | changes), encoding="utf-8")
    (done,) = warm_python.train(CASE_DIR / "train.py", folder / "run.json")
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (folder / "events/rank0.jsonl").read_text().splitlines()]


def trained(events: list[dict[str, Any]]) -> dict[int, float]:
    """Step -> loss."""
    windows = [event for event in events if event["event"] == "steps"]
    return {w["first"] + i: loss for w in windows for i, loss in enumerate(w["loss"])}


def test_a_run_resumed_in_the_middle_goes_on_exactly(tmp_path: Path) -> None:
    """Eight steps of six an epoch; the second run starts from the first one's last but one checkpoint."""
    values = params("mini", **SMALL) | {"max_samples": 64, "eval_every_samples": 64, "train_scenes": 48}
    often = {"every_s": 1e-6, "final": False}
    whole = drive(tmp_path / "whole", values, checkpoint=often)
    (tmp_path / "again/checkpoints").mkdir(parents=True)
    shutil.copy(tmp_path / "whole/checkpoints/previous.pt", tmp_path / "again/checkpoints/latest.pt")
    again = drive(tmp_path / "again", values, resume="checkpoints/latest.pt")
    expected, resumed = trained(whole), trained(again)
    assert sorted(expected) == list(range(1, 9))
    assert sorted(resumed) == [7, 8]
    assert resumed == {step: expected[step] for step in resumed}
    last = [[e["metrics"] for e in events if e["event"] == "eval_result"][-1] for events in (whole, again)]
    assert last[0] == last[1] and set(last[0]) == {"mAP", "mAP50"}
    start = next(event for event in whole if event["event"] == "run_start")
    assert start["flops_formula"] == "counted" and start["flops_per_sample"] > 0


def test_full_size_code_runs_on_random_images(tmp_path: Path) -> None:
    changes = {
        "canvas": [64, 96], "backbone_width": 8, "pyramid_channels": 16, "head_width": 32, "train_candidates": 50,
        "train_proposals": 60, "throughput_steps": 3, "throughput_warmup_steps": 1, "threads": 1, "log_freq": 1,
        "init_checkpoint": "absent.pth", "regions_per_image": 16,
    }  # fmt: skip
    events = drive(tmp_path, params(**changes), mode="throughput")
    found = trained(events)
    assert sorted(found) == [1, 2, 3, 4] and all(0 < loss < 20 for loss in found.values())
    assert sum(event["samples"] for event in events if event["event"] == "steps") == 8


def test_a_learning_rate_of_zero_finds_nothing(tmp_path: Path) -> None:
    values = params("mini", **SMALL) | {"lr": 0.0, "max_samples": 16, "eval_every_samples": 16, "eval_scenes": 50}
    events = drive(tmp_path, values)
    results = [event for event in events if event["event"] == "eval_result"]
    assert [event["met"] for event in results] == [False]
    assert results[0]["metrics"]["mAP50"] < 0.05
    assert events[-1]["reason"] == "max_samples"


def best(folder: Path, **changes: Any) -> dict[str, float]:
    """The metrics of the last evaluation of a whole mini run."""
    events = drive(folder, params("mini", threads=1), **changes)
    return [event["metrics"] for event in events if event["event"] == "eval_result"][-1]


@pytest.mark.nightly
@pytest.mark.slow
def test_mini_reaches_its_target(tmp_path: Path) -> None:
    target = case()["preset"]["mini"]["target"]["value"]
    quality = {"metric": "mAP", "better": "higher", "target": target}
    assert best(tmp_path, quality=quality, seed=7)["mAP"] >= target


@pytest.mark.slow
@pytest.mark.nightly
def test_shuffled_labels_stay_far_below_the_target(tmp_path: Path) -> None:
    target = case()["preset"]["mini"]["target"]["value"]
    assert best(tmp_path, sabotage="labels_shuffled")["mAP"] < target / 2
