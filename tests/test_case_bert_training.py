"""BERT trains: the loss says what it should, the evaluation counts exactly, and broken runs learn nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suite.catalog import load_catalog
from suite.drivers.events import RunProblem
from tests.case_bert import CASE, CASE_DIR, PLAIN, TINY_FULL, accuracies, drive, params, task
from tests.one_case import ROOT, losses

CATALOG = load_catalog(ROOT / "suite")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Fewer held-out sequences than mini has; not a multiple of any number of ranks or batch."""
    monkeypatch.setattr(CASE.characters, "EVALUATED", 101)
    return 101


def made(seed: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, and its model."""
    torch.manual_seed(seed)
    one = task(params("mini", **changes), seed=seed)
    model = one.build()
    one.prepare_data()
    return one, model


class Oracle(torch.nn.Module):
    """A model whose judgement is a function of the batch."""

    def __init__(self, judge: Any) -> None:
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.judge = judge

    def forward(self, **batch: Any) -> Any:
        return CASE.model.Judged(*self.judge(batch))


# The loss


def test_the_loss_is_a_mean_over_sequences_of_means_over_their_masked_places() -> None:
    one = task(params(**TINY_FULL, **PLAIN))
    ids = torch.tensor([[5, 6, 0], [7, 0, 0]])
    masked, follows = torch.tensor([[1.0, 3.0, 0.0], [8.0, 0.0, 0.0]]), torch.tensor([0.5, 1.5])
    model = Oracle(lambda batch: (masked, follows, None, None))
    assert one.loss(model, {"masked_ids": ids, "length": torch.ones(2)}).item() == (2 + 8) / 2 + 1


def test_two_halves_have_the_gradient_of_the_whole() -> None:
    """Also where the halves differ in length and in the number of masked places."""
    one = task(params(**TINY_FULL, **PLAIN))
    torch.manual_seed(0)
    model = one.build()
    whole = next(one.synthetic_batches())
    whole["masked_ids"][0, 3:] = 0
    one.loss(model, whole).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for rank in range(2):
        rows, places = slice(2 * rank, 2 * rank + 2), 2 * rank * 64
        half = {name: value[rows] for name, value in whole.items()}
        half |= {"first": half["first"] - places, "masked_places": half["masked_places"] - places}
        (one.loss(model, half) / 2).backward()
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


def test_two_ranks_have_the_gradient_of_one() -> None:
    gradients = []
    for world in (1, 2):
        torch.manual_seed(3)
        model = task(params("mini", train_batch_size=32 // world), world=world).build()
        for rank in range(world):
            one = task(params("mini", train_batch_size=32 // world), rank=rank, world=world)
            one.prepare_data()
            (one.loss(model, next(iter(one.train_batches(1)))) / world).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for alone, shared in zip(*gradients):
        torch.testing.assert_close(alone, shared, rtol=1e-3, atol=1e-5)


# The evaluation


def test_who_knows_all_words_scores_all() -> None:
    one, _ = made()
    knows = Oracle(lambda b: (None, None, b["masked_ids"] > 0, b["next_sentence"] >= 0))
    assert one.evaluate(knows) == {"mlm_accuracy": (9000, 9000), "next_sentence_accuracy": (1000, 1000)}
    ignores = Oracle(lambda b: (None, None, b["masked_ids"] < 0, b["next_sentence"] < -1))
    assert one.evaluate(ignores) == {"mlm_accuracy": (0, 9000), "next_sentence_accuracy": (0, 1000)}


def test_the_ranks_shares_add_up_also_where_they_are_uneven(few: int) -> None:
    one, model = made()
    assert len(one.held_out) == few
    with torch.no_grad():
        whole = one.evaluate(model.eval())
        shares = []
        for rank in range(3):
            share = task(params("mini", global_batch_size=0), rank=rank, world=3)
            share.prepare_data()
            shares.append(share.evaluate(model))
    for name, pair in whole.items():
        assert pair == tuple(map(sum, zip(*(share[name] for share in shares))))


def test_batches_of_any_size_count_the_same(few: int) -> None:
    one, model = made()
    found = []
    for size in (7, few, 128):
        one.params["eval_batch_size"] = size
        with torch.no_grad():
            found.append(one.evaluate(model.eval()))
    assert found[0] == found[1] == found[2]
    assert found[0]["mlm_accuracy"][1] == 9 * few


# Training


def steps(one: Any, model: Any, count: int, *, lr: float = 4e-3, shuffled: bool = False) -> list[float]:
    """The losses of `count` plain steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98))
    generator, found = torch.Generator().manual_seed(0), []
    for _, batch in zip(range(count), one.train_batches(1)):
        loss = one.loss(model, one.shuffle_labels(batch, generator) if shuffled else batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def test_the_same_seed_trains_the_same() -> None:
    assert steps(*made(seed=4), 3) == steps(*made(seed=4), 3)
    assert steps(*made(seed=4), 1) != steps(*made(seed=5), 1)


def test_a_few_sequences_are_learnt_by_heart_and_not_with_shuffled_labels() -> None:
    """A proxy of the long runs: real labels of one batch can be learnt, new ones at every step cannot."""
    torch.manual_seed(0)
    ends = {}
    for shuffled in (False, True):
        one, model = made()
        batch = next(iter(one.train_batches(1)))
        one.train_batches = lambda epoch, skip=0, batch=batch: iter([batch] * 40)
        ends[shuffled] = np.mean(steps(one, model, 40, shuffled=shuffled)[-5:])
    assert ends[False] < 2.0
    assert ends[True] > 3.0


def test_without_a_learning_rate_nothing_changes(few: int) -> None:
    one, model = made()
    with torch.no_grad():
        before = one.evaluate(model.eval())
    steps(one, model.train(), 3, lr=0.0)
    with torch.no_grad():
        assert one.evaluate(model.eval()) == before
    assert before["mlm_accuracy"][0] / before["mlm_accuracy"][1] < 0.2


# Pre-trained weights


def published(model: Any) -> dict[str, Any]:
    """The model's weights under the published names, three in one taken apart."""
    weights = {}
    for name, value in model.state_dict().items():
        parts = CASE.checkpoint.published_names(name)
        weights |= dict(zip(parts, value.clone().chunk(len(parts))))
    return weights


def test_published_weights_fill_every_parameter(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = task(params(**{**TINY_FULL, "vocab_size": 197})).build()
    weights = published(source)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        weights[name] = weights[name][:197]
    weights = {name.replace("intermediate.dense", "intermediate.dense_act"): value for name, value in weights.items()}
    torch.save({"model": weights}, tmp_path / "weights.pt")
    values = params(**{**TINY_FULL, "vocab_size": 197, "init_checkpoint": "weights.pt"})
    loaded = task(values, data_dir=tmp_path).build()
    for name, value in source.state_dict().items():
        rows = slice(197) if name in CASE.checkpoint.GROWS else slice(None)
        assert torch.equal(loaded.state_dict()[name][rows], value[rows]), name


def test_names_are_those_of_the_published_encoder() -> None:
    names = {
        part
        for name in task(params(**TINY_FULL)).build().state_dict()
        for part in CASE.checkpoint.published_names(name)
    }
    assert "bert.encoder.layer.1.attention.self.key.bias" in names
    assert "bert.encoder.layer.0.output.LayerNorm.weight" in names
    assert "cls.predictions.transform.LayerNorm.bias" in names
    assert len(names) == 5 + 2 * 16 + 9


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    weights = published(task(params(**TINY_FULL)).build())
    values = params(**{**TINY_FULL, "vocab_size": 300, "init_checkpoint": "weights.pt"})
    torch.save(weights, tmp_path / "weights.pt")
    with pytest.raises(RunProblem, match=r"parameter 'masked_bias' is \(200,\) in .*, \(304,\) in the model"):
        task(values, data_dir=tmp_path).build()
    weights.pop("bert.pooler.dense.bias")
    torch.save(weights, tmp_path / "weights.pt")
    with pytest.raises(RunProblem, match=r"lacks 'bert\.pooler\.dense\.bias'"):
        task(values | {"vocab_size": 200}, data_dir=tmp_path).build()
    (tmp_path / "weights.pt").write_text("no checkpoint")
    with pytest.raises(RunProblem, match="cannot be loaded as plain weights"):
        task(values, data_dir=tmp_path).build()
    (tmp_path / "weights.pt").unlink()
    with pytest.raises(RunProblem, match=r"weights.pt \(init_checkpoint\) is missing: .*--set init_checkpoint"):
        task(values, data_dir=tmp_path).build()


# Through the driver


def test_the_driver_trains_mini_and_a_resumed_run_goes_on_alike(tmp_path: Path) -> None:
    values = params("mini", max_samples=1280, eval_every_samples=640, threads=1)
    whole = drive(tmp_path / "whole", values, checkpoint={"every_s": 1e-3, "final": False})
    assert [event["samples"] for event in whole if event["event"] == "eval_result"] == [640, 1280]
    assert len(losses(whole)) == 40
    assert np.mean(losses(whole)[-5:]) < losses(whole)[0] - 0.5
    start = next(event for event in whole if event["event"] == "run_start")
    assert start["flops_per_sample"] == task(values).shape.training_flops(64, 64**2, 9)
    assert start["global_batch"] == 32
    saved = next(event for event in whole if event["event"] == "checkpoint_stop" and event["step"] == 30)
    late = drive(tmp_path / "late", values, resume=str(tmp_path / "whole" / saved["path"]))
    assert losses(late) == losses(whole)[30:]
    assert accuracies(late) == accuracies(whole)[1:]


def test_the_driver_measures_full_on_random_tokens_with_lamb(tmp_path: Path) -> None:
    values = params(**{**TINY_FULL, "global_batch_size": 8, "gradient_accumulation_steps": 2})
    values |= {"throughput_steps": 3, "throughput_warmup_steps": 1, "threads": 1, "init_checkpoint": "absent.pt"}
    events = drive(tmp_path, values, mode="throughput")
    windows = [event for event in events if event["event"] == "steps"]
    assert sum(event["count"] for event in windows) == 4
    assert sum(event["samples"] for event in windows) == 4 * 8
    assert sum(event["tokens"] for event in windows) == 4 * 8 * 64
    assert all(math.isfinite(loss) for loss in losses(events))


@pytest.mark.nightly
@pytest.mark.slow
def test_mini_reaches_its_target(tmp_path: Path) -> None:
    target = CATALOG.case("bert", "pytorch").spec.preset["mini"].target.value
    quality = {"metric": "mlm_accuracy", "better": "higher", "target": target}
    healthy = drive(tmp_path, params("mini", threads=1), quality=quality)
    assert accuracies(healthy)[-1] >= target
    assert healthy[-1]["reason"] == "target_reached"


@pytest.mark.slow
@pytest.mark.nightly
def test_broken_runs_of_mini_stay_below_its_target(tmp_path: Path) -> None:
    values = params("mini", threads=1)
    target = CATALOG.case("bert", "pytorch").spec.preset["mini"].target.value
    shuffled = drive(tmp_path / "shuffled", values, sabotage="labels_shuffled")
    assert max(accuracies(shuffled)) < target
    still = drive(tmp_path / "still", values | {"lr": 0.0, "max_samples": 3200})
    assert max(accuracies(still)) < target


def test_a_device_is_named_nowhere() -> None:
    for path in CASE_DIR.glob("*.py"):
        assert "cuda" not in path.read_text(encoding="utf-8").lower(), path.name


def test_slots_are_those_that_case_toml_declares() -> None:
    slots = CASE.train.PretrainBert.default_slots()
    assert set(slots) | {"optimizer"} == set(CATALOG.case("bert", "pytorch").spec.extern.slots)
    assert slots["attention"] is CASE.parts.standard_attention
