"""ALMA trains: the loss says what it should, the evaluation counts exactly, ranks agree, broken runs learn nothing."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from suite.catalog import load_catalog  # noqa: E402
from tests import warm_python  # noqa: E402
from tests.case_alma import CASE, CASE_DIR, TINY, drive, params, run_json, scores, task  # noqa: E402
from tests.one_case import ROOT, losses  # noqa: E402

CATALOG = load_catalog(ROOT / "suite")
SHORT = {"base_steps": 3, "max_samples": 512, "eval_every_samples": 256, "threads": 1, "log_freq": 2}
"""Eight steps of 64 phrases on a hardly trained model."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models are slower with several threads, on a busy machine much slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(seed: int = 1, rank: int = 0, world: int = 1, **changes: Any) -> tuple[Any, Any]:
    """A mini task with its data, its model not trained underneath."""
    torch.manual_seed(seed)
    one = task(params("mini", **changes), seed=seed, rank=rank, world=world)
    model = one.build()
    one.prepare_data()
    return one, model


class Oracle(torch.nn.Module):
    """A model whose losses are a function of the batch."""

    def __init__(self, judge: Any) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, *batch: Any) -> Any:
        return self.judge(*batch)


# The loss


def test_the_loss_is_a_mean_over_examples_of_means_over_their_answers() -> None:
    one = task(params(**TINY))
    frame = CASE.data.Frame(length=8, max_answer=3, pad_multiple=0)
    batch = frame.pack([CASE.data.Example((1, 5), (7, 8, 2)), CASE.data.Example((1, 5), (2,))])
    model = Oracle(lambda tokens, first, labels: torch.tensor([[1.0, 3.0, 5.0], [8.0, 0.0, 0.0]]))
    assert one.loss(model, batch).item() == (3 + 8) / 2


def test_who_knows_nothing_pays_for_the_whole_vocabulary() -> None:
    one = task(params(**TINY))
    torch.manual_seed(0)
    model = one.build()
    with torch.no_grad():
        model.head.zero_()
    assert one.loss(model, next(one.synthetic_batches())).item() == pytest.approx(math.log(101))


def test_two_ranks_have_the_gradient_of_one() -> None:
    gradients = []
    for world in (1, 2):
        torch.manual_seed(3)
        model = task(params("mini")).build()
        for rank in range(world):
            one = task(params("mini", train_batch_size=16 // world), rank=rank, world=world)
            one.prepare_data()
            (one.loss(model, next(iter(one.train_batches(1)))) / world).backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.requires_grad])
    assert len(gradients[0]) == 3 * 11
    for alone, shared in zip(*gradients):
        torch.testing.assert_close(alone, shared, rtol=1e-3, atol=1e-6)


# The evaluation


def test_who_knows_every_translation_scores_all(monkeypatch: pytest.MonkeyPatch) -> None:
    one, model = made()
    every = CASE.phrases.Phrases(CASE_DIR / "data/cldr_en_de.tsv.xz")
    right = {one.words.question(phrase).prompt: one.words.translation(phrase).answer for phrase in every.held_out}
    monkeypatch.setattr(one, "_answers", lambda model, prompts: [right[prompt] for prompt in prompts])
    assert one.combine([one.evaluate(model)]) == {"chrf": 100.0, "exact_match": 1.0}
    monkeypatch.setattr(one, "_answers", lambda model, prompts: [(2,)] * len(prompts))
    assert one.combine([one.evaluate(model)]) == {"chrf": 0.0, "exact_match": 0.0}


def test_the_ranks_shares_add_up_also_where_they_are_uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CASE.phrases, "HELD_OUT", 20)
    one, model = made()
    whole = one.combine([one.evaluate(model.eval())])
    shares, sizes = [], []
    for rank in range(3):
        share, _ = made(rank=rank, world=3, eval_batch_size=2)
        sizes.append(len(share.held_out))
        shares.append(share.evaluate(model))
    assert sizes == [7, 7, 6]
    assert one.combine(shares) == whole and whole["chrf"] > 0


# Training


def test_the_model_underneath_is_trained_alone_and_by_a_generator_of_its_own() -> None:
    found = []
    for _ in range(2):
        one, model = made()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(len(found))  # the global one plays no part
        examples = [one.examples[i] for i in range(50)]
        loss = CASE.underneath.train_underneath(model, examples, one.frame, params("mini", base_steps=2), 7)
        found.append(loss)
        same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
        adapters = {name for name in before if CASE.lora.is_adapter(name)}
        assert same == adapters
        assert {name for name, one in model.named_parameters() if one.requires_grad} == adapters
        assert all(parameter.grad is None for parameter in model.parameters())
    assert found[0] == found[1]


def test_a_few_phrases_are_learnt_by_heart_and_not_without_a_rate_or_with_shuffled_answers() -> None:
    """A proxy of the long runs: adapters fit one batch by heart; what changes at every step they cannot fit."""
    ends = {}
    one, start = made(train_batch_size=12)
    small = params("mini", base_steps=30, base_batch_size=16)
    CASE.underneath.train_underneath(start, one.examples, one.frame, small, 1)
    batch, generator = next(iter(one.train_batches(1))), torch.Generator().manual_seed(0)
    for name, lr in (("healthy", 1e-2), ("still", 0.0), ("shuffled", 1e-2)):
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, betas=(0.9, 0.98))
        found = []
        for _ in range(30 if lr else 5):
            loss = one.loss(model, one.shuffle_labels(batch, generator) if name == "shuffled" else batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        ends[name] = (found[0], float(np.mean(found[-5:])))
    assert ends["healthy"][1] < 0.6
    assert ends["still"][1] == pytest.approx(ends["still"][0])
    assert ends["shuffled"][1] > 0.7


# Through the driver


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Eight steps of one rank, with their checkpoints."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, drive(folder, params("mini", **SHORT), checkpoint={"every_s": 1e-3, "final": False})


def test_the_driver_trains_mini_and_a_resumed_run_goes_on_alike(tmp_path: Path, whole: Any) -> None:
    folder, events = whole
    assert len(losses(events)) == 8 and len(scores(events)) == 2
    ready = next(event for event in events if event["event"] == "init_stop")
    assert (ready["parameters"], ready["trainable"]) == (568_192 + 107_520, 107_520)
    epoch = next(event for event in events if event["event"] == "epoch_start")
    assert epoch["flops_formula"] == "counted_lora" and epoch["flops_per_sample"] > 1e7
    assert not [event for event in events if event["event"] == "epoch_stop"]  # 512 of 4,903 phrases
    saved = [event for event in events if event["event"] == "checkpoint_stop"][-1]
    assert saved["step"] == 6
    late = drive(tmp_path / "late", params("mini", **SHORT), resume=str(folder / saved["path"]))
    assert losses(late) == losses(events)[6:]
    assert scores(late) == scores(events)[1:]


def test_two_ranks_share_one_model_underneath_and_train_as_one(tmp_path: Path, whole: Any) -> None:
    """Rank 0 trains it alone; the same phrases then have the same losses however many ranks share them."""
    values = params("mini", **SHORT | {"max_samples": 256, "train_batch_size": 32})
    expect = {"world_size": 2, "precision": "fp32", "device_match": []}
    path = run_json(tmp_path / "two", values, topology={"nnodes": 1, "nproc": 2}, expect=expect)
    done = warm_python.train(CASE_DIR / "train.py", path, 2)
    assert [one.returncode for one in done] == [0, 0], "".join(one.stdout + one.stderr for one in done)
    ranks = [
        [json.loads(line) for line in (tmp_path / f"two/events/rank{rank}.jsonl").read_text().splitlines()]
        for rank in range(2)
    ]
    checksums = [next(event for event in events if event["event"] == "checksum") for events in ranks]
    assert [checksum["equal"] for checksum in checksums] == [True, True]
    shared = np.mean([losses(events) for events in ranks], axis=0)
    assert shared == pytest.approx(losses(whole[1])[:4], rel=1e-3)
    assert scores(ranks[0]) == pytest.approx(scores(whole[1])[:1], abs=0.5)


def test_the_driver_measures_random_tokens(tmp_path: Path) -> None:
    tiny = {**TINY, "num_workers": 0, "threads": 1, "throughput_steps": 2, "throughput_warmup_steps": 1, "log_freq": 1}
    events = drive(tmp_path, params(**tiny | {"init_checkpoint": "absent"}), mode="throughput", preset="full")
    windows = [event for event in events if event["event"] == "steps"]
    assert sum(event["count"] for event in windows) == 3
    assert sum(event["tokens"] for event in windows) == 3 * 4 * 48
    assert all(math.isfinite(loss) for loss in losses(events))
    start = next(event for event in events if event["event"] == "run_start")
    assert start["flops_formula"] == "counted_lora"


@pytest.mark.slow
@pytest.mark.nightly
def test_mini_reaches_its_target_and_runs_with_shuffled_answers_do_not(tmp_path: Path) -> None:
    target = CATALOG.case("alma", "pytorch").spec.preset["mini"].target.value
    healthy = drive(tmp_path / "healthy", params("mini", threads=1))
    assert max(scores(healthy)) >= target
    shuffled = drive(tmp_path / "shuffled", params("mini", threads=1), sabotage="labels_shuffled")
    assert max(scores(shuffled)) < target
