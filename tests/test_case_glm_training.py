"""GLM trains: the loss says what it should, the evaluation counts exactly, and broken runs learn nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.drivers.events import RunProblem
from tests import warm_python
from tests.case_glm import CASE, CASE_DIR, TINY_FULL, params, task, write_record

ROOT = CASE_DIR.parents[3]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order, and no fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(seed: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, and its model."""
    torch.manual_seed(seed)
    one = task(params("mini", **changes), seed=seed)
    model = one.build()
    one.prepare_data()
    return one, model


def constant(values: Any) -> Any:
    """A model that gives the rows of a pack these log-probabilities, one a token."""

    class Oracle(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.anchor = torch.nn.Parameter(torch.zeros(()))

        def forward(self, tokens: Any, separator: Any, blank: Any, answer: Any) -> Any:
            return values(tokens, separator, blank, answer)

    return Oracle()


# The loss


def test_the_loss_of_one_candidate_is_its_negative_log_likelihood() -> None:
    one, _ = made()
    batch = next(iter(one.train_batches(1)))
    model = constant(lambda tokens, separator, blank, answer: torch.full(answer.shape, -0.5))
    expected = 0.5 * batch["answer_length"].float().mean()
    torch.testing.assert_close(one.loss(model, batch), expected)


def test_the_loss_of_a_choice_is_its_cross_entropy_over_real_candidates() -> None:
    one = task(params(**TINY_FULL))
    batch = next(one.synthetic_batches())
    batch["answer_length"][:] = 1
    batch["choices"][:] = torch.tensor([4, 2])
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 50.0, 50.0]])
    model = constant(lambda tokens, separator, blank, answer: scores.view(-1, 1).expand(answer.shape))
    expected = -(scores[0].log_softmax(0)[0] + scores[1, :2].log_softmax(0)[0]) / 2
    torch.testing.assert_close(one.loss(model, batch), expected)


def test_two_halves_have_the_gradient_of_the_whole() -> None:
    one, model = made()
    whole = next(iter(one.train_batches(1)))
    one.loss(model, whole).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for half in (slice(0, 16), slice(16, 32)):
        (one.loss(model, {name: value[half] for name, value in whole.items()}) / 2).backward()
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


# The evaluation


def knows(one: Any) -> Any:
    """log-probabilities that are high for right answers alone."""
    right = {(tuple(q.candidates[i].context), tuple(q.candidates[i].answer)) for q in one.held_out for i in q.right}

    def values(tokens: Any, separator: Any, blank: Any, answer: Any) -> Any:
        rows = zip(tokens.tolist(), separator.tolist(), answer.tolist())
        good = [(tuple(row[:a]), tuple(token for token in asked if token)) in right for row, a, asked in rows]
        return torch.where(torch.tensor(good)[:, None], 0.0, -9.0).expand(answer.shape)

    return values


def test_who_knows_all_answers_scores_all() -> None:
    one, _ = made()
    assert one.evaluate(constant(knows(one))) == {"accuracy": (300, 300)}


def test_a_score_that_is_not_a_number_is_never_correct() -> None:
    one, _ = made()
    nan = constant(lambda tokens, separator, blank, answer: torch.full(answer.shape, math.nan))
    assert one.evaluate(nan) == {"accuracy": (0, 300)}


def test_the_ranks_shares_add_up() -> None:
    """Whatever the model says, and whichever rank asks it."""
    says = constant(lambda tokens, separator, blank, answer: -(answer * 7919 % 101).float() / 10)
    whole = made()[0].evaluate(says)["accuracy"]
    shares = []
    for rank in range(3):
        share = task(params("mini"), rank=rank, world=3)
        share.prepare_data()
        shares.append(share.evaluate(says)["accuracy"])
    assert whole == tuple(map(sum, zip(*shares)))
    assert 0 < whole[0] < 300


@pytest.mark.parametrize("changes", [{"eval_batch_size": 7}, {"pad_multiple": 0}, {"eval_batch_size": 400}])
def test_packs_of_any_size_give_the_same_scores(changes: dict[str, Any]) -> None:
    one, model = made()
    other, _ = made(**changes)
    rows = [row for question in one.held_out[:15] for row in question.candidates]
    with torch.no_grad():
        np.testing.assert_allclose(one._scores(model, rows), other._scores(model, rows), rtol=1e-4)


# Training


def steps(one: Any, model: Any, count: int, *, lr: float = 3e-3, shuffled: bool = False) -> list[float]:
    """The losses of `count` plain steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _, batch in zip(range(count), one.train_batches(1)):
        loss = one.loss(model, one.shuffle_labels(batch, generator) if shuffled else batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.nightly
def test_the_loss_falls_and_less_so_with_shuffled_answers() -> None:
    losses = {shuffled: steps(*made(), 30, shuffled=shuffled) for shuffled in (False, True)}
    assert np.mean(losses[False][-5:]) < losses[False][0] / 2
    assert np.mean(losses[False][-5:]) < np.mean(losses[True][-5:])


def test_the_same_seed_trains_the_same() -> None:
    assert steps(*made(seed=4), 3) == steps(*made(seed=4), 3)
    assert steps(*made(seed=4), 1) != steps(*made(seed=5), 1)


@pytest.fixture
def record_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(CASE.prepare, "case_params", lambda: params(**TINY_FULL))
    folder = write_record(tmp_path / "data")
    assert CASE.prepare.main(["--data-dir", str(folder)]) == 0
    return folder


def test_full_learns_a_tiny_record(record_dir: Path) -> None:
    torch.manual_seed(2)
    one = task(params(**TINY_FULL, dropout=0.0, attention_dropout=0.0), data_dir=record_dir)
    model = one.build()
    one.prepare_data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(90):
        for batch in one.train_batches(epoch):
            optimizer.zero_grad()
            one.loss(model, batch).backward()
            optimizer.step()
    with torch.no_grad():
        correct, asked = one.evaluate(model.eval())["accuracy"]
    assert asked == 4
    assert correct >= 3, "training and evaluation ask the same four questions here"


# Pre-trained weights


def published(model: Any) -> dict[str, Any]:
    """The model's weights under the published names."""
    back = {ours: theirs for theirs, ours in (CASE.checkpoint.OUTER | CASE.checkpoint.INNER).items()}
    weights = {}
    for name, value in model.state_dict().items():
        head, rest = "", name
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            head = f"transformer.layers.{number}."
        start = next(ours for ours in back if rest == ours or (ours.endswith(".") and rest.startswith(ours)))
        weights[head + back[start] + rest.removeprefix(start)] = value.clone()
    return weights


def with_checkpoint(folder: Path, weights: dict[str, Any], **changes: Any) -> Any:
    torch.save({"module": weights, "iteration": 200000}, folder / "weights.pt")
    values = params(**{**TINY_FULL, "init_checkpoint": "weights.pt", **changes})
    return task(values, data_dir=folder).build()


def test_published_weights_fill_every_parameter(tmp_path: Path) -> None:
    source = task(params(**TINY_FULL)).build()
    loaded = with_checkpoint(tmp_path, published(source))
    for name, value in source.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_a_shorter_table_of_positions_fills_the_beginning(tmp_path: Path) -> None:
    source = task(params(**TINY_FULL)).build()
    loaded = with_checkpoint(tmp_path, published(source), max_positions=100)
    assert torch.equal(loaded.positions.weight[:65], source.positions.weight)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    weights = published(task(params(**TINY_FULL)).build())
    with pytest.raises(RunProblem, match=r"'words\.weight' is"):
        with_checkpoint(tmp_path, weights, vocab_size=201)
    weights.pop("word_embeddings.weight")
    with pytest.raises(RunProblem, match=r"lacks 1 of \d+ parameters of GLM, 'words.weight'"):
        with_checkpoint(tmp_path, weights)


def test_a_missing_checkpoint_is_said_with_both_remedies(tmp_path: Path) -> None:
    one = task(params(**{**TINY_FULL, "init_checkpoint": "weights.pt"}), data_dir=tmp_path)
    with pytest.raises(RunProblem, match=r"weights.pt \(init_checkpoint\) is missing: .*--set init_checkpoint"):
        one.build()


class Surprise:
    """Pickles as a call of os.mkdir."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_run_never_unpickles_code_and_prepare_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = task(params(**TINY_FULL)).build()
    torch.save({"module": published(source), "args": Surprise(tmp_path / "ran")}, tmp_path / "theirs.pt")
    with pytest.raises(RunProblem, match=r"reduce it to its weights with prepare\.py"):
        CASE.checkpoint.load_pretrained(source, tmp_path / "theirs.pt")
    assert not (tmp_path / "ran").exists()
    values = params(**{**TINY_FULL, "init_checkpoint": "plain.pt"})
    monkeypatch.setattr(CASE.prepare, "case_params", lambda: values)
    argv = ["--data-dir", str(tmp_path), "--what", "checkpoint", "--source", str(tmp_path / "theirs.pt")]
    assert CASE.prepare.main(argv) == 0
    assert set(task(values, data_dir=tmp_path).build().state_dict()) == set(source.state_dict())


# Through the driver


def run_json(folder: Path, values: dict[str, Any], **changes: Any) -> Path:
    """run.json for one rank on this CPU."""
    (folder / "events").mkdir(parents=True)
    spec = {
        "schema": 1, "run": "glm-test", "id": "glm-pytorch-cpu-host-1x1", "n": 1, "attempt": 1,
        "mode": "converge", "preset": "mini", "params": values, "seed": 1, "topology": {"nnodes": 1, "nproc": 1},
        "quality": {"metric": "accuracy", "better": "higher", "target": 0.7}, "limit_s": 300,
        "device": {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "visible_devices": "",
                   "visible_style": "none", "shared": True, "options": {}},
        "expect": {"world_size": 1, "precision": "fp32", "device_match": []}, "machine": "host", "data_dir": None,
        "case_dir": str(CASE_DIR), "extern_dir": None, "runtime_dir": None, "slots": [], "run_dir": str(folder),
        "checkpoint": {"every_s": 0, "final": False}, "resume": None, "heartbeat_s": 5, "capabilities": {},
        "sabotage": None,
    }  # fmt: skip
    path = folder / "run.json"
    path.write_text(json.dumps(spec | changes), encoding="utf-8")
    return path


def drive(folder: Path, values: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """The events of train.py, run as a rank is."""
    (done,) = warm_python.train(CASE_DIR / "train.py", run_json(folder, values, **changes))
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (folder / "events/rank0.jsonl").read_text().splitlines()]


def test_the_driver_trains_mini_and_evaluates(tmp_path: Path) -> None:
    changes = {"max_samples": 640, "eval_every_samples": 320, "threads": 1}
    events = drive(tmp_path, params("mini", **changes))
    results = [event for event in events if event["event"] == "eval_result"]
    assert [event["samples"] for event in results] == [320, 640]
    assert all(0 < event["metrics"]["accuracy"] < 0.7 for event in results)
    losses = [loss for event in events if event["event"] == "steps" for loss in event["loss"]]
    assert len(losses) == 20
    assert losses[-1] < losses[0]
    start = next(event for event in events if event["event"] == "run_start")
    assert start["flops_formula"] == "counted"
    assert start["flops_per_sample"] == pytest.approx(task(params("mini")).shape.training_flops(*CASE.cloze.MEAN_WORK))
    assert events[-1]["reason"] == "max_samples"


def test_the_driver_measures_full_on_random_tokens(tmp_path: Path) -> None:
    changes = {"throughput_steps": 3, "throughput_warmup_steps": 1, "threads": 1}
    events = drive(tmp_path, params(**{**TINY_FULL, **changes, "init_checkpoint": "absent.pt"}), mode="throughput")
    windows = [event for event in events if event["event"] == "steps"]
    assert sum(event["count"] for event in windows) == 4
    assert sum(event["tokens"] for event in windows) == 4 * 2 * 4 * 64
    assert all(math.isfinite(loss) for event in windows for loss in event["loss"])


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name


def test_slots_are_those_that_case_toml_declares() -> None:
    slots = CASE.train.FillBlanks.default_slots()
    assert set(slots) | {"optimizer"} == {"attention", "optimizer"}
    assert SimpleNamespace(**slots).attention is CASE.model.standard_attention
