"""GPT-3 trains: data are shared out without overlap, the evaluation counts exactly, and broken runs learn nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from suite.catalog import load_catalog
from suite.drivers.events import RunProblem
from suite.drivers.pytorch.loop import Loop
from suite.plan import Request
from suite.selection import plans
from tests.case_gpt3 import CASE, DATA_DIR, ROOT, SMALL, bits, drive, losses, of, params, task

CATALOG = load_catalog(ROOT / "suite")
PYTORCH: dict[str, Any] = {"models": ("gpt3",), "frameworks": ("pytorch",)}
TEXT = DATA_DIR / "shakespeare.txt.xz"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus() -> Any:
    """The plays as tokens."""
    return CASE.data.read_plays(TEXT, DATA_DIR / "tokenizer.json", 512)


def made(corpus: Any, seed: int = 1, rank: int = 0, world: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, and its model."""
    torch.manual_seed(seed)
    values = params("mini", **{"global_batch_size": 0, "train_batch_size": 32 // world, **changes})
    one = task(values, seed=seed, rank=rank, world=world)
    one.corpus = corpus
    return one, one.build()


class Constant(torch.nn.Module):
    """A model whose -log p of every sequence is a number made of its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.calls = 0

    def forward(self, tokens: Any, following: Any) -> Any:
        self.calls += 1
        return tokens[:, 0].float()


# The data


def test_the_words_were_learnt_from_the_training_part_alone() -> None:
    text = CASE.words.read_text(TEXT)
    learnt = CASE.words.train(text[: round(len(text) * (1 - CASE.data.HELD_OUT))], 512)
    assert learnt.get_vocab() == CASE.words.load(DATA_DIR / "tokenizer.json", 512).get_vocab()


def test_tokens_stand_for_all_bytes_of_the_text(corpus: Any) -> None:
    text = CASE.words.read_text(TEXT)
    cut = round(len(text) * (1 - CASE.data.HELD_OUT))
    for tokens, part in ((corpus.train, text[:cut]), (corpus.held_out, text[cut:])):
        assert corpus.byte_lengths[tokens].sum(dtype=np.int64) == len(part.encode())


def test_nothing_held_out_is_trained_on(corpus: Any) -> None:
    """No stretch of 32 held-out tokens is one of the training part."""
    length = 32
    trained = {corpus.train[i : i + length].tobytes() for i in range(len(corpus.train) - length)}
    held_out = [corpus.held_out[i : i + length].tobytes() for i in range(0, len(corpus.held_out) - length, length)]
    assert len(held_out) > 1000
    assert not trained & set(held_out)


def test_two_ranks_share_the_global_batches_of_one(corpus: Any) -> None:
    alone = made(corpus)[0].train_batches(2)
    ranks = [made(corpus, rank=rank, world=2)[0].train_batches(2) for rank in range(2)]
    for whole, *parts in islice(zip(alone, *ranks), 5):
        for name in ("tokens", "following"):
            assert torch.equal(whole[name], torch.cat([part[name] for part in parts]))


def test_an_epoch_is_the_text_once_in_an_order_of_its_own(corpus: Any) -> None:
    one = made(corpus)[0]
    first, again, second = (
        torch.cat([batch["tokens"] for batch in one.train_batches(epoch)]) for epoch in (1, 1, 2)
    )  # fmt: skip
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert len({row.numpy().tobytes() for row in first}) == len(first) == len(corpus.train) // 128 // 32 * 32
    late = list(one.train_batches(1, skip=100))
    assert torch.equal(torch.cat([batch["tokens"] for batch in late]), first[3200:])


def test_the_following_token_is_the_next_one(corpus: Any) -> None:
    batch = next(made(corpus)[0].train_batches(1))
    assert torch.equal(batch["tokens"][:, 1:], batch["following"][:, :-1])


def test_random_tokens_never_repeat_and_differ_by_rank() -> None:
    streams = [task(params(**SMALL), rank=rank, world=2).synthetic_batches() for rank in range(2)]
    found = [next(stream)["tokens"] for stream in streams for _ in range(2)]
    assert len({batch.numpy().tobytes() for batch in found}) == 4
    assert max(int(batch.max()) for batch in found) < SMALL["vocab_size"]


def test_prepared_text_trains_and_broken_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be " * 200, encoding="utf-8")
    argv = ["--data-dir", str(tmp_path), "--text", str(tmp_path / "a.txt"), "--vocab-size", "300", "--held-out", "0.2"]
    assert CASE.prepare.main(argv) == 0
    one = task(params(**SMALL), data_dir=tmp_path)
    one.prepare_data()
    assert len(next(one.train_batches(1))["tokens"]) == 4
    # What ends the document stands for no byte of it.
    every = np.concatenate([one.corpus.train, one.corpus.held_out])
    assert one.corpus.byte_lengths[every].sum(dtype=np.int64) == 19 * 200
    np.save(tmp_path / "train.npy", np.zeros((2, 2)))
    with pytest.raises(RunProblem, match=r"train.npy is float64 of shape \(2, 2\), not a row of tokens"):
        one.prepare_data()
    (tmp_path / "train.npy").write_text("no array")
    with pytest.raises(RunProblem, match=r"train.npy cannot be read as an array of tokens"):
        one.prepare_data()
    (tmp_path / "train.npy").unlink()
    with pytest.raises(RunProblem, match=r"train.npy \(train_data\) is missing: python -m tools data status gpt3"):
        one.prepare_data()
    assert CASE.prepare.main([*argv[:3], str(tmp_path / "absent.txt")]) == 4
    assert "absent.txt cannot be read as text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"feed": "relu"}, "feed = 'relu' is not one of gelu, swiglu"),
        ({"num_heads": 5}, "num_heads = 5 must divide hidden_size = 32"),
        ({"tensor_parallel": 8}, "be divided by tensor_parallel = 8"),
        ({"global_batch_size": 16}, "is 4, global_batch_size is 16: set gradient_accumulation_steps = 4$"),
        ({"global_batch_size": 6}, "no whole gradient_accumulation_steps does"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RunProblem, match=sentence):
        task(params(**{**SMALL, **changes}))


# The evaluation


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_ranks_shares_add_up_also_where_they_are_uneven(corpus: Any, world: int) -> None:
    """And every rank calls the model equally often, since with a divided model a call is an exchange."""
    total, calls = np.zeros(2), set()
    for rank in range(world):
        one, model = made(corpus, rank=rank, world=world, eval_sequences=101, eval_batch_size=7)[0], Constant()
        total += one.evaluate(model)["bits_per_byte"]
        calls.add(model.calls)
    rows = corpus.held_out[: 101 * 128 + 1]
    asked = sum(float(rows[i * 128]) for i in range(101)) / math.log(2)
    assert total == pytest.approx([asked, corpus.byte_lengths[rows[1:]].sum(dtype=np.int64)])
    assert len(calls) == 1


def test_bits_are_those_of_the_model(corpus: Any) -> None:
    one, model = made(corpus, eval_sequences=8, eval_batch_size=3)
    with torch.no_grad():
        found = one.evaluate(model.eval())
        batch = one.cutter.cut(corpus.held_out, np.arange(8))
        expected = model(batch["tokens"], batch["following"]).sum().item()
    assert found["token_loss"] == (pytest.approx(expected, rel=1e-5), 8 * 128)
    assert found["bits_per_byte"][0] == pytest.approx(expected / math.log(2), rel=1e-5)


# Training


def steps(one: Any, model: Any, count: int, *, lr: float = 3e-3, shuffled: bool = False) -> list[float]:
    """The losses of `count` plain steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    generator, found = torch.Generator().manual_seed(0), []
    for _, batch in zip(range(count), one.train_batches(1)):
        loss = one.loss(model, one.shuffle_labels(batch, generator) if shuffled else batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_two_ranks_have_the_gradient_of_one(corpus: Any) -> None:
    found = []
    for world in (1, 2):
        model = made(corpus)[1]
        for rank in range(world):
            one = made(corpus, rank=rank, world=world)[0]
            (one.loss(model, next(one.train_batches(1))) / world).backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for alone, shared in zip(*found):
        torch.testing.assert_close(alone, shared, rtol=1e-3, atol=1e-6)


def test_a_few_sequences_are_learnt_by_heart_and_not_with_shuffled_labels(corpus: Any) -> None:
    """A proxy of the long runs: what follows in one batch can be learnt, a new deal at every step cannot."""
    ends = {}
    for shuffled in (False, True):
        one, model = made(corpus, train_batch_size=4)
        batch = next(one.train_batches(1))
        one.train_batches = lambda epoch, batch=batch: iter([batch] * 60)
        ends[shuffled] = np.mean(steps(one, model, 60, shuffled=shuffled)[-5:])
    assert ends[False] < 2.5
    assert ends[True] > 4.0


def test_without_a_learning_rate_nothing_changes(corpus: Any) -> None:
    one, model = made(corpus, eval_sequences=32)
    with torch.no_grad():
        before = one.evaluate(model.eval())
    steps(one, model.train(), 2, lr=0.0)
    with torch.no_grad():
        assert one.evaluate(model.eval()) == before


# Through the driver


def test_the_driver_trains_mini_and_a_resumed_run_goes_on_alike(tmp_path: Path) -> None:
    values = params("mini", threads=1, num_workers=0, max_steps=20, val_check_interval=10, eval_sequences=32)
    (whole,) = drive(tmp_path / "whole", values, checkpoint={"every_s": 1e-3, "final": False})
    assert [event["step"] for event in of(whole, "eval_result")] == [10, 20]
    assert (len(losses(whole)), whole[-1]["reason"]) == (20, "max_steps")
    assert losses(whole)[-1] < losses(whole)[0] - 0.5
    assert bits(whole)[1] < bits(whole)[0]
    start = of(whole, "run_start")[0]
    assert (start["flops_per_sample"], start["flops_formula"]) == task(values).flops_per_sample()
    saved = next(event for event in of(whole, "checkpoint_stop") if event["step"] == 10)
    (late,) = drive(tmp_path / "late", values, resume=str(tmp_path / "whole" / saved["path"]))
    assert losses(late) == losses(whole)[10:]
    assert bits(late) == bits(whole)[1:]


def test_an_evaluation_after_the_end_is_refused() -> None:
    loop = SimpleNamespace(max_steps=20, global_batch=32, eval_every=100)
    with pytest.raises(RunProblem, match="val_check_interval = 21 is above max_steps = 20: no evaluation would come"):
        Loop._read_interval(loop, 21)
    Loop._read_interval(loop, 0)
    assert loop.eval_every == 100
    Loop._read_interval(loop, 20)
    assert loop.eval_every == 640


def test_the_driver_measures_full_on_random_tokens(tmp_path: Path) -> None:
    values = params(**{**SMALL, "gradient_accumulation_steps": 2, "activation_checkpointing": "selective"})
    (events,) = drive(tmp_path, values, mode="throughput")
    windows = of(events, "steps")
    assert sum(window["count"] for window in windows) == 6
    assert sum(window["samples"] for window in windows) == 6 * 8
    assert sum(window["tokens"] for window in windows) == 6 * 8 * 32
    assert all(math.isfinite(loss) for loss in losses(events))


@pytest.mark.slow
@pytest.mark.nightly
def test_mini_reaches_its_target_and_broken_runs_do_not(tmp_path: Path) -> None:
    values = params("mini", threads=1)
    target = CATALOG.case("gpt3", "pytorch").spec.preset["mini"].target.value
    assert min(bits(drive(tmp_path / "healthy", values | {"max_steps": 120})[0])) <= target
    (shuffled,) = drive(tmp_path / "shuffled", values | {"max_steps": 120}, sabotage="labels_shuffled")
    assert min(bits(shuffled)) > target
    assert min(bits(drive(tmp_path / "still", values | {"lr": 0.0, "max_steps": 40})[0])) > target


# The plans


TOPOLOGIES = {"cpu": {"1x1", "1x2", "2x1"}, "nvidia": {"1x1", "1x2", "1x4", "1x8", "2x8"}}


@pytest.mark.parametrize(("vendor", "machine"), [("nvidia", m) for m in ("A100", "H100", "H200")] + [("cpu", None)])
def test_every_plan_keeps_the_global_batch(vendor: str, machine: str | None) -> None:
    found = list(plans(CATALOG, Request(vendor=vendor, machine=machine, **PYTORCH, presets=("*",))))
    assert {str(plan.topology) for plan in found} == TOPOLOGIES[vendor]
    for plan in found:
        sizes = [int(str(plan.params[key])) for key in ("train_batch_size", "gradient_accumulation_steps")]
        assert sizes[0] * sizes[1] * plan.data_ranks == plan.params["global_batch_size"], plan.id
        assert int(str(plan.params["val_check_interval"])) <= int(str(plan.params["max_steps"])), plan.id
        steps = int(str(plan.params["max_steps"]))
        assert steps * int(str(plan.params["global_batch_size"])) == plan.params["max_samples"], plan.id


def test_the_guides_changes_are_the_full_preset() -> None:
    values = params()
    guide = {"max_steps": 2000, "val_check_interval": 240, "sequence_length": 2048, "global_batch_size": 512}
    assert {key: values[key] for key in guide} == guide
    assert values["global_batch_size"] == 92160 / 180
    (plan,) = plans(CATALOG, Request(vendor="nvidia", machine="H200", **PYTORCH, topologies=("1x8",)))
    assert (plan.limit_s, plan.deadlines.total_s) == (5400, 7200)
    checks = {check.name: check for check in plan.checks}
    assert checks["consumed_samples"].threshold == 2000 * 512


def test_ranks_that_share_a_batch_are_one_to_the_plan() -> None:
    request = Request(
        vendor="cpu", **PYTORCH, topologies=("1x2",), presets=("mini",),
        sets=("tensor_parallel=2", "train_batch_size=32"),
    )  # fmt: skip
    (plan,) = plans(CATALOG, request)
    assert (plan.data_ranks, plan.world_size, plan.division) == (1, 2, "closed")


def test_slots_are_those_that_case_toml_declares() -> None:
    slots = CASE.train.PretrainGpt.default_slots()
    assert set(slots) | {"optimizer"} == set(CATALOG.case("gpt3", "pytorch").spec.extern.slots)
    assert slots["attention"] is CASE.model.standard_attention
