"""The driver's parts, one by one: schedules, optimizers, slots, checksums, batches, evaluation."""

from __future__ import annotations

import math
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.driver_toy import PARAMS, RUN

torch = pytest.importorskip("torch")

from suite.drivers.events import Place, RunProblem, RunSpec  # noqa: E402
from suite.drivers.pytorch import batches, checksum, optimizer, seed  # noqa: E402
from suite.drivers.pytorch.device import Device, EnvironmentProblem  # noqa: E402
from suite.drivers.pytorch.distributed import Group, transport  # noqa: E402
from suite.drivers.pytorch.evaluation import evaluate, meets  # noqa: E402
from suite.drivers.pytorch.expectation import check_expectations  # noqa: E402
from suite.drivers.pytorch.precision import Precision  # noqa: E402
from suite.drivers.pytorch.prefetch import Ahead  # noqa: E402
from suite.drivers.pytorch.schedule import Schedule  # noqa: E402
from suite.drivers.pytorch.slots import Runtime, fill_slots  # noqa: E402


def schedule(**params: Any) -> Schedule:
    return Schedule({**PARAMS, "schedule_steps": 100, **params}, global_batch=16)


def cpu(**capabilities: bool) -> Device:
    return Device.open(RUN["device"], 0, capabilities=capabilities)


class Ranks:
    """Several ranks' values, as one rank would gather them."""

    def __init__(self, *others: Any) -> None:
        self.others = others
        self.rank, self.world_size = 0, 1 + len(others)

    def gather(self, value: Any) -> list[Any]:
        return [value, *((None,) * len(self.others) if value is None else self.others)]


@pytest.mark.parametrize(
    ("params", "step", "factor"),
    [
        ({"lr_schedule": "constant"}, 99, 1.0),
        ({"lr_schedule": "constant", "warmup_steps": 10}, 0, 0.1),
        ({"lr_schedule": "constant", "warmup_steps": 10}, 9, 1.0),
        ({"lr_schedule": "constant", "warmup_ratio": 0.2}, 4, 0.25),
        ({"lr_schedule": "linear", "warmup_steps": 20}, 60, 0.5),
        ({"lr_schedule": "linear", "lr_min_ratio": 0.2}, 50, 0.6),
        ({"lr_schedule": "linear", "lr_min_ratio": 0.2}, 500, 0.2),
        ({"lr_schedule": "cosine"}, 0, 1.0),
        ({"lr_schedule": "cosine"}, 25, (1 + math.sqrt(0.5)) / 2),
        ({"lr_schedule": "cosine", "lr_min_ratio": 0.1}, 50, 0.55),
        ({"lr_schedule": "cosine", "lr_min_ratio": 0.1}, 100, 0.1),
        ({"lr_schedule": "inverse_sqrt", "warmup_steps": 4}, 3, 1.0),
        ({"lr_schedule": "inverse_sqrt", "warmup_steps": 4}, 15, 0.5),
        ({"lr_schedule": "step", "lr_step_every": 30, "lr_step_gamma": 0.1}, 29, 1.0),
        ({"lr_schedule": "step", "lr_step_every": 30, "lr_step_gamma": 0.1}, 60, 0.01),
    ],
)
def test_schedules(params: dict[str, Any], step: int, factor: float) -> None:
    assert schedule(**params)(step) == pytest.approx(factor)


def test_a_schedule_without_a_length_lasts_to_max_samples() -> None:
    assert schedule(schedule_steps=0, max_samples=1281).total == 81


def test_wrong_names_are_refused_with_what_there_is() -> None:
    with pytest.raises(RunProblem, match="lr_schedule = 'cosin' is not one of constant, linear"):
        schedule(lr_schedule="cosin")
    with pytest.raises(RunProblem, match="optimizer = 'lion' is not one of adamw"):
        optimizer.check_name({"optimizer": "lion"})
    with pytest.raises(RunProblem, match="precision = 'fp12' is not one of fp32"):
        Precision("fp12", cpu())


def test_biases_are_not_decayed() -> None:
    groups = optimizer.decayed_groups(torch.nn.Linear(2, 3), 0.1)
    assert [(group["weight_decay"], [list(p.shape) for p in group["params"]]) for group in groups] == [
        (0.1, [[3, 2]]),
        (0.0, [[3]]),
    ]


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_every_optimizer_makes_a_loss_smaller(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    made = optimizer.make_optimizer({**PARAMS, "optimizer": name}, [{"params": [weight]}], optimizer.fused(name, cpu()))
    stepper = optimizer.Stepper(made, schedule(), None, 1.0, cpu())
    for number in range(5):
        weight.square().sum().backward()
        stepper.step(number)
    assert float(weight.detach().square().sum()) < 3


def test_a_missing_fused_optimizer_is_a_named_fallback() -> None:
    device = cpu(fused_optimizer=False)
    assert not optimizer.fused("adamw", device)
    assert [entry["what"] for entry in device.fallbacks] == ["fused_optimizer"]


def test_gradients_are_clipped_together() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    made = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.tensor([30.0, 40.0])
    optimizer.Stepper(made, schedule(), None, 1.0, cpu()).step(0)
    assert weight.tolist() == pytest.approx([-0.6, -0.8], rel=1e-4)


@pytest.mark.parametrize("use_fused", [False, True])
def test_steps_skipped_by_the_loss_scaler_are_counted(use_fused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    made = optimizer.make_optimizer(PARAMS, [{"params": [weight]}], use_fused)
    scaler = cpu().scaler()
    stepper = optimizer.Stepper(made, schedule(), scaler, 1.0, cpu())
    for number, factor in enumerate((1.0, math.inf, 1.0, math.inf)):
        scaler.scale((weight * factor).sum()).backward()
        stepper.step(number)
    assert stepper.take_counts() == {"skipped": 2, "updates": 2}
    assert stepper.take_counts() == {"skipped": 0, "updates": 0}
    assert math.isfinite(float(weight.detach()))


def test_precision_is_read_back_from_what_is_in_force() -> None:
    assert Precision("bf16", cpu()).facts()["compute"] == "bf16"
    assert Precision("fp16", cpu()).facts()["autocast"] == "float16"
    facts = Precision("fp32", cpu()).facts()
    assert (facts["compute"], facts["autocast"], facts["matmul"]) == ("fp32", None, "highest")


def test_a_product_that_loses_bits_is_not_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    precision, product = Precision("fp32", cpu()), torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: product(a.bfloat16(), b.bfloat16()).float())
    assert precision.facts()["compute"] == "tf32"


def test_extern_fills_declared_slots_only(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("def attention():\n    return 'ours'\n")
    (tmp_path / "__init__.py").write_text(
        "from extern.kernels import attention\ndef fill(slots):\n    slots['attention'] = attention\n"
    )
    slots = fill_slots({"attention": print, "loss": len}, str(tmp_path), ["attention"])
    assert slots["attention"]() == "ours" and slots["loss"] is len
    assert slots.replaced() == {"attention": str(tmp_path / "kernels.py")}
    with pytest.raises(RunProblem, match="extern/ fills attention, which the plan does not list"):
        fill_slots({"attention": print}, str(tmp_path), [])
    with pytest.raises(RunProblem, match=r"'attention', which the case does not declare \(have: loss\)"):
        fill_slots({"loss": len}, str(tmp_path), ["attention"])
    assert fill_slots({"attention": print}, str(tmp_path), ["extern"])["attention"]() == "ours"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "exports no fill"),
        ("def fill(s): s['loss'] = 3", "cannot be called"),
        ("def fill(s): del s['loss']", "removes"),
    ],
)
def test_a_broken_extern_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "__init__.py").write_text(text)
    with pytest.raises(RunProblem, match=sentence):
        fill_slots({"loss": len}, str(tmp_path), ["loss"])


def test_runtime_hooks_are_named_and_absent_ones_do_nothing(tmp_path: Path) -> None:
    (tmp_path / "runtime.py").write_text("def after_step(device):\n    return device\n")
    runtime = Runtime(str(tmp_path))
    assert runtime.after_step("chip") == "chip" and runtime.setup("chip", None) is None
    assert runtime.replaced() == {"runtime:after_step": str(tmp_path / "runtime.py")}
    assert Runtime(None).replaced() == {}


def test_one_different_bit_is_seen_by_the_checksum() -> None:
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    assert checksum.digest_parameters(model) == checksum.digest_parameters(other)
    with torch.no_grad():
        other.bias[1] = torch.nextafter(other.bias[1], torch.tensor(9.0))
    digest, _, sums = checksum.digest_parameters(other)
    found = checksum.compare(model, Ranks((digest, sums)))
    assert found["equal"] is False and 0 < found["spread"] < 1e-6
    assert found["groups"][0]["holders"] == [0, 1]


def test_a_zero_of_another_sign_is_another_byte() -> None:
    model, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    for made, zero in ((model, 0.0), (other, -0.0)):
        for parameter in made.parameters():
            torch.nn.init.constant_(parameter, zero)
    assert checksum.digest_parameters(model)[0] != checksum.digest_parameters(other)[0]


def test_a_rank_alone_compares_nothing() -> None:
    found = checksum.compare(torch.nn.Linear(3, 2), Group(Place(0, 1, 0, 1, 0), cpu()))
    assert (found["equal"], found["spread"], found["uncovered"]) == (None, None, 8)


def test_ranks_of_low_precision_are_compared_too() -> None:
    model = torch.nn.Linear(4, 4).bfloat16()
    assert checksum.compare(model, Ranks(checksum.digest_parameters(model)[::2]))["equal"] is True


def test_a_sum_that_is_not_finite_has_no_spread() -> None:
    assert math.isnan(checksum.spread([[1.0, math.nan], [1.0, 2.0]]))
    assert checksum.spread([[1.0, 5.0], [1.5, 2.0]]) == 3.0


class Shares:
    """A task of which only the evaluation matters."""

    def __init__(self, **shares: tuple[float, float]) -> None:
        self.shares = shares

    def evaluate(self, model: Any) -> dict[str, tuple[float, float]]:
        assert not model.training and not torch.is_grad_enabled()
        return self.shares


def test_uneven_shards_are_summed_before_the_division() -> None:
    model = torch.nn.Linear(1, 1)
    found = evaluate(Shares(accuracy=(1, 3)), model, Precision("fp32", cpu()), Ranks({"accuracy": (4.0, 5.0)}))
    assert found == ({"accuracy": 5 / 8}, {"accuracy": 8.0}, 0, None) and model.training


def test_an_empty_evaluation_is_no_number_and_never_meets() -> None:
    found = evaluate(Shares(accuracy=(0, 0)), torch.nn.Linear(1, 1), Precision("fp32", cpu()), Ranks())
    quality = {"metric": "accuracy", "better": "lower", "target": 1.0}
    assert math.isnan(found.metrics["accuracy"]) and not meets(found.metrics, quality)
    assert meets({"accuracy": 1.0}, quality) and not meets({"accuracy": 1.1}, quality)
    with pytest.raises(RunProblem, match=r"gives no 'accuracy'.*\(have: bleu\)"):
        meets({"bleu": 1.0}, quality)


def test_ranks_that_measure_different_things_are_told() -> None:
    with pytest.raises(RunProblem, match="different metrics"):
        evaluate(Shares(a=(1, 1)), torch.nn.Linear(1, 1), Precision("fp32", cpu()), Ranks({"b": (1.0, 1.0)}))


class Short:
    """Two batches an epoch."""

    rank = 0
    length = 2

    def train_batches(self, epoch: int, skip: int = 0) -> Any:
        yield from [{"x": torch.full((4,), epoch)}] * (self.length - skip)

    def count(self, batch: Any) -> dict[str, int]:
        return {"samples": len(batch["x"]), "tokens": 9}


def test_batches_go_on_over_epochs_from_any_cursor() -> None:
    stream = batches.epochs(Short(), epoch=3, skip=1)
    assert [(m.epoch, m.index, m.samples) for m in (next(stream) for _ in range(4))] == [
        (3, 1, 4),
        (4, 0, 4),
        (4, 1, 4),
        (5, 0, 4),
    ]
    assert next(batches.epochs(Short(), epoch=3, skip=2)).epoch == 4


def test_an_epoch_without_batches_is_one_sentence() -> None:
    empty = Short()
    empty.length = 0
    with pytest.raises(RunProblem, match="rank 0 has no training batch in epoch 1"):
        next(batches.epochs(empty))


def test_a_thread_builds_ahead_in_order_and_hands_over_its_exception() -> None:
    def source() -> Any:
        yield from range(5)
        raise ValueError("no more")

    ahead, got = Ahead(source(), 2), []
    with pytest.raises(ValueError, match="no more"):
        for item in ahead:
            got.append(item)
    ahead.close()
    assert got == list(range(5))
    assert list(Ahead(iter([1, 2]), 4)) == [1, 2]


def test_random_state_is_restored_exactly() -> None:
    device = cpu()
    seed.seed_everything(3, device)
    state, first = seed.get_state(device), torch.rand(4)
    seed.set_state(state, device)
    assert torch.equal(torch.rand(4), first)
    assert len({seed.rank_seed(3, rank) for rank in range(1000)}) == 1000


def test_what_differs_from_the_plan_is_named_with_its_rank() -> None:
    place, facts = Place(0, 1, 0, 1, 0), {"compute": "fp32"}
    run = RunSpec({**RUN, "expect": {"world_size": 2, "precision": "fp32", "device_match": []}})
    with pytest.raises(EnvironmentProblem, match="rank 0: world size is 1 where the plan says 2"):
        check_expectations(run, place, cpu(), facts, Ranks())
    run = RunSpec({**RUN, "expect": {"world_size": 1, "precision": "tf32", "device_match": []}})
    with pytest.raises(EnvironmentProblem, match="computes in fp32 where the plan says tf32"):
        check_expectations(run, place, cpu(), facts, Ranks())
    run = RunSpec({**RUN, "expect": {"world_size": 1, "precision": "fp32", "device_match": ["*H900*"]}})
    with pytest.raises(EnvironmentProblem, match=r"is no host \(\*H900\*\)"):
        check_expectations(run, place, cpu(), facts, Ranks())


def test_two_ranks_on_one_chip_are_told() -> None:
    device = cpu()
    twin = {"host": socket.gethostname(), "identity": device.identity, "problem": ""}
    run = RunSpec({**RUN, "device": {**RUN["device"], "shared": False}})
    with pytest.raises(EnvironmentProblem, match="ranks 0 and 1 hold one device"):
        check_expectations(run, Place(0, 1, 0, 1, 0), device, {"compute": "fp32"}, Ranks(twin))


def test_ranks_without_a_meeting_point_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
    with pytest.raises(EnvironmentProblem, match="MASTER_ADDR is not set, so 2 ranks cannot meet"):
        Group(Place(0, 2, 0, 2, 0), cpu())


def test_the_transport_is_a_name_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (transport(1, "gloo"), transport(2, "gloo"), transport(2, "cpu:gloo,x:y")) == ("none", "tcp", "unknown")
    monkeypatch.setenv("TRAINMARK_TRANSPORT", "rdma")
    assert transport(2, "cpu:gloo,x:y") == "rdma"


def test_every_parameter_that_the_driver_reads_is_documented():
    """docs/driver.md names each key of params that occurs in the driver."""
    root = Path(__file__).resolve().parent.parent
    page = (root / "docs/driver.md").read_text(encoding="utf-8")
    paths = [*(root / "suite/drivers/pytorch").glob("*.py"), *(root / "suite/drivers").glob("*.py")]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    read = {key for text in sources for key in re.findall(r'params(?:\[|\.get\()"([a-z_0-9]+)"', text)}
    assert {"lr", "train_batch_size", "lr_milestones"} <= read
    assert sorted(key for key in read if f"`{key}`" not in page) == []
