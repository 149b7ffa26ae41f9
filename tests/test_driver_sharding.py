"""A model divided over two ranks, sharded or by tensor parallelism, trains, saves and counts as a whole one does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.case_gpt3 import bits, drive_all, events_of, losses, of, params, task
from tests.driver_toy import PARAMS

torch = pytest.importorskip("torch")

from suite.drivers.events import Place, RunProblem  # noqa: E402
from suite.drivers.pytorch import pieces  # noqa: E402
from suite.drivers.pytorch.layout import DataRanks, Layout  # noqa: E402
from suite.drivers.pytorch.optimizer import clip  # noqa: E402

STEPS = 6
SMALL = {
    "dataset": "tokens", "train_data": "train.npy", "eval_data": "held_out.npy", "vocab_size": 128,
    "hidden_size": 32, "feed_size": 64, "sequence_length": 32, "eval_sequences": 21, "eval_batch_size": 4,
    "max_steps": STEPS, "val_check_interval": 3, "log_freq": 3, "threads": 1, "num_workers": 0,
    "feed": "swiglu", "positions": "rotary", "tied": False, "bias": False, "global_batch_size": 8, "lr": 0.5,
    "clip_grad_norm": 0.2, "adam_eps": 0.1,
}  # fmt: skip
"""The full model's parts in a toy's sizes. Every gradient is clipped, and Adam notices how long it is."""
BOUND = 2e-5
"""How far a loss may be from one rank's: 32-bit sums in another order. Between two ranks' own batches lies 0.01."""
SAVED = {"checkpoint": {"every_s": 0, "final": True}}


def of_one(**changes: Any) -> dict[str, Any]:
    return params("mini", **{**SMALL, "train_batch_size": 8, "warmup_ratio": 0.0, **changes})


def of_two(**changes: Any) -> dict[str, Any]:
    return of_one(**{"train_batch_size": 4, **changes})


TENSOR = {"tensor_parallel": 2, "train_batch_size": 8}
FSDP = {"sharding": "fsdp"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A small corpus in which every second token follows from the one before it."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, count in (("train", 4000), ("held_out", 900)):
        token = random.integers(0, 64, count // 2)
        np.save(folder / f"{name}.npy", np.stack((token, token + 64), 1).ravel().astype(np.uint16))
    np.save(folder / "byte_lengths.npy", np.full(128, 2, dtype=np.uint8))
    return {"data_dir": str(folder)}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, data: dict[str, str]) -> Path:
    """Trainings of one rank, whole and in bf16."""
    folder = tmp_path_factory.mktemp("one")
    runs = {"fp32": of_one(), "bf16": of_one(precision="bf16"), "unclipped": of_one(clip_grad_norm=0.0)}
    drive_all({folder / name: (values, data) for name, values in runs.items()}, 1)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, data: dict[str, str]) -> Path:
    """Trainings of two ranks, each as its name says."""
    folder = tmp_path_factory.mktemp("two")
    runs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "fsdp": (of_two(**FSDP), SAVED),
        "tensor": (of_two(**TENSOR), SAVED),
        "fsdp-bf16": (of_two(**FSDP, precision="bf16", reshard_after_forward=False), {}),
        "gelu": (of_two(**TENSOR, feed="gelu", positions="learned", tied=True, bias=True), {}),
        "accumulated": (of_two(**FSDP, train_batch_size=2, gradient_accumulation_steps=2), {}),
        "alone": (of_two(**FSDP), {"sabotage": "gradients_not_averaged"}),
        "shuffled": (of_two(**TENSOR), {"sabotage": "labels_shuffled"}),
    }
    for name in ("fsdp", "tensor"):
        values, _ = runs[name]
        # A limit of no time at all ends a run at its first window; the next goes on from there.
        runs[f"{name}-first"] = (values, {**SAVED, "limit_s": 0.0})
        latest = str(folder / f"{name}-first" / "checkpoints" / "latest.pt")
        runs[f"{name}-resumed"] = (values, {**SAVED, "resume": latest})
    drive_all({folder / name: (values, data | changes) for name, (values, changes) in runs.items()}, 2)
    return folder


def mean_losses(folder: Path) -> list[float]:
    """The loss of every step over both ranks' batches."""
    return [sum(pair) / 2 for pair in zip(losses(events_of(folder, 0)), losses(events_of(folder, 1)))]


def checksum(folder: Path, rank: int = 0) -> dict[str, Any]:
    return of(events_of(folder, rank), "checksum")[0]


@pytest.mark.parametrize("name", ["fsdp", "accumulated", "tensor"])
def test_a_divided_model_has_the_curve_of_a_whole_one(one: Path, two: Path, name: str) -> None:
    assert len(mean_losses(two / name)) == STEPS
    assert mean_losses(two / name) == pytest.approx(losses(events_of(one / "fp32")), abs=BOUND)
    assert bits(events_of(two / name)) == pytest.approx(bits(events_of(one / "fp32")), abs=BOUND)


def test_the_curves_depend_on_the_clipping(one: Path) -> None:
    """Or their equality would say nothing about the norm of a divided model's gradients."""
    clipped, free = (losses(events_of(one / name)) for name in ("fp32", "unclipped"))
    assert abs(clipped[-1] - free[-1]) > 100 * BOUND


def test_a_divided_model_of_learned_positions_and_one_table_trains_too(two: Path) -> None:
    found = losses(events_of(two / "gelu"))
    assert found == losses(events_of(two / "gelu", 1))
    assert found[-1] < found[0] - 0.1


def test_sharded_bf16_is_near_bf16_and_fp32(one: Path, two: Path) -> None:
    sharded, whole, exact = (
        mean_losses(two / "fsdp-bf16"), losses(events_of(one / "bf16")), losses(events_of(one / "fp32"))
    )  # fmt: skip
    assert sharded == pytest.approx(whole, abs=0.02)
    assert whole == pytest.approx(exact, abs=0.05)
    assert whole != exact


def test_samples_are_counted_once(two: Path) -> None:
    for name, shares in (("fsdp", (4, 4)), ("tensor", (8, 0))):
        for rank, share in enumerate(shares):
            windows = of(events_of(two / name, rank), "steps")
            assert [window["samples"] for window in windows] == [3 * share] * 2
            assert [window["tokens"] for window in windows] == [3 * share * 32] * 2
        assert of(events_of(two / name), "run_start")[0]["global_batch"] == 8
        assert [event["samples"] for event in of(events_of(two / name), "eval_result")] == [24, 48]
        assert events_of(two / name)[-1]["samples"] == 48


def test_only_what_several_ranks_hold_is_compared(one: Path, two: Path) -> None:
    parameters = of(events_of(one / "fp32"), "init_stop")[0]["parameters"]
    for name in ("fsdp", "tensor"):
        assert of(events_of(two / name), "init_stop")[0]["parameters"] == parameters
    sharded = checksum(two / "fsdp")
    assert (sharded["equal"], sharded["groups"], sharded["uncovered"]) == (None, [], parameters / 2)
    norms = 2 * 2 * 2 * 32 + 2 * 32
    for rank in (0, 1):
        found = checksum(two / "tensor", rank)
        assert (found["equal"], found["spread"]) == (True, 0.0)
        assert [(group["holders"], group["count"]) for group in found["groups"]] == [([0, 1], norms)]
        assert found["uncovered"] == (parameters - norms) / 2


def test_ranks_that_do_not_exchange_gradients_are_told(two: Path) -> None:
    found = checksum(two / "alone")
    assert found["equal"] is False and found["spread"] > 0
    assert found["uncovered"] == 0


def test_shuffled_labels_are_shuffled_alike_in_a_group(two: Path) -> None:
    assert losses(events_of(two / "shuffled")) == losses(events_of(two / "shuffled", 1))
    assert losses(events_of(two / "shuffled")) != losses(events_of(two / "tensor"))


@pytest.mark.parametrize("name", ["fsdp", "tensor"])
def test_a_divided_run_is_resumed_exactly(two: Path, name: str) -> None:
    first, resumed = events_of(two / f"{name}-first"), events_of(two / f"{name}-resumed")
    assert of(resumed, "run_start")[0]["resumed_from_step"] == 3
    assert losses(first) + losses(resumed) == losses(events_of(two / name))
    assert all(window["updates"] == window["count"] for window in of(resumed, "steps")), "restoring is no update"
    ends = [torch.load(two / run / "checkpoints/latest.pt", weights_only=True) for run in (name, f"{name}-resumed")]
    assert all(torch.equal(ends[0]["model"][key], ends[1]["model"][key]) for key in ends[0]["model"])


@pytest.mark.parametrize("name", ["fsdp", "tensor"])
def test_a_checkpoint_is_whole_and_plain(two: Path, data: dict[str, str], name: str) -> None:
    """One rank evaluates what two have saved, without knowing of it, and finds what they found."""
    saved = torch.load(two / name / "checkpoints/latest.pt", weights_only=True)
    assert {type(value) for value in saved["model"].values()} == {torch.Tensor}
    alone = task(of_one(), data_dir=Path(data["data_dir"]))
    model = alone.build()
    model.load_state_dict(saved["model"])
    alone.prepare_data()
    with torch.no_grad():
        top, bottom = alone.evaluate(model.eval())["bits_per_byte"]
    assert top / bottom == pytest.approx(bits(events_of(two / name))[-1], abs=1e-5)


# The layout


def layout(world: int, nnodes: int = 1, rank: int = 0, **changes: Any) -> Layout:
    place = Place(rank, world, rank % (world // nnodes), world // nnodes, rank // (world // nnodes))
    return Layout.of({**PARAMS, **changes}, nnodes, place)


@pytest.mark.parametrize(
    ("world", "nnodes", "changes", "found"),
    [
        (1, 1, {"sharding": "fsdp"}, (1, 1, 1)),
        (8, 1, {}, (8, 1, 1)),
        (8, 1, {"sharding": "fsdp"}, (1, 8, 1)),
        (16, 2, {"sharding": "hybrid"}, (2, 8, 1)),
        (16, 2, {"sharding": "hybrid", "tensor_parallel": 4}, (2, 2, 4)),
        (16, 2, {"sharding": "fsdp", "tensor_parallel": 4}, (1, 4, 4)),
        (16, 2, {"tensor_parallel": 4}, (4, 1, 4)),
    ],
)
def test_ranks_are_laid_out(world: int, nnodes: int, changes: dict[str, Any], found: tuple[int, ...]) -> None:
    every = [layout(world, nnodes, rank, **changes) for rank in range(world)]
    assert {(one.replicas, one.shards, one.tensor) for one in every} == {found}
    assert every[0].divides == (found[1] * found[2] > 1)
    assert sum(one.counts for one in every) == every[0].data_size == world // found[2]
    assert sorted({one.data_rank for one in every}) == list(range(every[0].data_size))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sharding": "zero3"}, "sharding = 'zero3' is not one of none, fsdp, hybrid"),
        ({"tensor_parallel": 3}, "tensor_parallel = 3 does not divide the 4 devices of a node"),
        ({"tensor_parallel": 0}, "tensor_parallel = 0 does not divide"),
        ({"sharding": "fsdp", "precision": "fp16"}, "set precision = 'bf16'"),
        ({"sharding": "fsdp", "optimizer": "lamb"}, "optimizer = 'lamb' needs whole tensors"),
    ],
)
def test_what_cannot_be_divided_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RunProblem, match=sentence):
        layout(8, 2, **changes)


def test_the_evaluation_gathers_each_batch_once() -> None:
    everyone = SimpleNamespace(gather=lambda value: [f"{value}{rank}" for rank in range(8)])
    assert DataRanks(everyone, layout(8, tensor_parallel=4)).gather("share") == ["share0", "share4"]


class Piece:
    """A tensor of which a rank holds a part, as far as the driver looks at it."""

    def __init__(self, axes: str, here: tuple[int, ...]) -> None:
        names = ("replica", "shard")
        self.device_mesh = SimpleNamespace(mesh_dim_names=names, get_local_rank=lambda axis: here[names.index(axis)])
        self.placements = [SimpleNamespace(is_replicate=lambda name=name: name not in axes) for name in names]

    def to_local(self) -> Piece:
        return self


def test_a_piece_is_known_by_its_place_among_the_axes_that_split_it() -> None:
    assert pieces.coordinate(Piece("shard", (0, 1))) == pieces.coordinate(Piece("shard", (3, 1))) == "shard1"
    assert pieces.coordinate(Piece("shard replica", (3, 1))) == "replica3 shard1"
    assert pieces.coordinate(Piece("", (3, 1))) == pieces.coordinate(torch.ones(1)) == ""


def test_pieces_of_two_replicas_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks in two replicas of two shards; one number of rank 3 differs."""

    def held(rank: int) -> Any:
        values = torch.full((3,), float(rank % 2)) + (torch.tensor([0.0, 1e-6, 0.0]) if rank == 3 else 0)
        values.device_mesh = SimpleNamespace(
            mesh_dim_names=("replica", "shard"),
            get_local_rank=lambda axis: rank // 2 if axis == "replica" else rank % 2,
        )
        values.placements = Piece("shard", (0, 0)).placements
        return values

    models = [SimpleNamespace(named_parameters=lambda rank=rank: [("w", held(rank))]) for rank in range(4)]
    monkeypatch.setattr(pieces, "local", lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "to_local", lambda tensor: tensor, raising=False)
    told: list[Any] = []
    for model in models:
        pieces.compare(model, SimpleNamespace(gather=lambda value: told.append(value) or [{}]))
    found = [pieces.compare(model, SimpleNamespace(gather=lambda value: told)) for model in models]
    assert [event["equal"] for event in found] == [True, False, True, False]
    assert [event["groups"][0]["holders"] for event in found] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert found[1]["spread"] > 0 and found[0]["uncovered"] == 0


def test_plain_gradients_are_clipped_as_before() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([30.0, 40.0])
    clip([weight], 1.0)
    assert weight.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-4)
