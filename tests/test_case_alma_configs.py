"""ALMA's configurations: the guide's table is held to, and the global batch is kept everywhere."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from suite.catalog import load_catalog
from suite.plan import Request
from suite.selection import plans
from tests.case_alma import params
from tests.one_case import ROOT

CATALOG = load_catalog(ROOT / "suite")
MINE: dict[str, Any] = {"models": ("alma",), "frameworks": ("pytorch",)}


def configured(machine: str, **request: Any) -> list[Any]:
    return list(plans(CATALOG, Request(vendor="nvidia", machine=machine, **MINE, **request)))


@pytest.mark.parametrize("machine", ["A100", "H100", "H200"])
def test_the_guides_table_is_held_to_at_every_topology(machine: str) -> None:
    found = {str(plan.topology): plan for plan in configured(machine)}
    assert {"1x1", "1x2", "1x4", "1x8", "2x8"} <= found.keys()
    for topology, plan in found.items():
        world = plan.world_size
        checks = {check.name: check for check in plan.checks}
        sizes = [int(str(plan.params[key])) for key in ("train_batch_size", "gradient_accumulation_steps")]
        assert sizes[0] * sizes[1] == 120, topology
        assert checks["trainable_parameters"].threshold == 7_733_248
        assert checks["global_batch"].threshold == 120 * world == 960 * world / 8
        assert checks["steps"].threshold == 1024 / world == 128 * 8 / world
        assert int(str(plan.params["max_samples"])) / (120 * world) == checks["steps"].threshold
        assert str(plan.params["precision"]) == ("bf16" if machine == "H200" else "fp16")
    pair = found["2x8"]
    assert pair.base is not None and str(pair.base.topology) == "1x8"
    (equal,) = [check for check in pair.checks if check.name == "step_time_as_1x8"]
    assert (equal.metric, equal.op, equal.threshold, equal.tolerance) == ("efficiency", "==", 1.0, 0.05)
    assert equal.required and "27:08" in equal.source and "13:34" in equal.source
    assert not [check for check in found["1x8"].checks if check.name == "step_time_as_1x8"]


@pytest.mark.parametrize("world", [1, 2, 4, 8, 16])
def test_the_steps_are_those_of_the_guides_own_formula(world: int) -> None:
    """Micro-batches of an epoch, ten to a step, the rest of an epoch left out, eight epochs."""
    micro_batches = math.ceil(15_406 / (12 * world))
    assert micro_batches // 10 * 8 == 1024 / world == int(params()["max_samples"]) / (120 * world)


@pytest.mark.parametrize(("topology", "total_s", "steps"), [("1x8", 27 * 60 + 8, 128), ("2x8", 13 * 60 + 34, 64)])
def test_the_guides_seconds_per_step_are_held_to_on_its_own_machine(topology: str, total_s: int, steps: int) -> None:
    (plan,) = configured("A100", topologies=(topology,))
    (check,) = [check for check in plan.checks if check.name == "step_time"]
    assert (check.metric, check.op) == ("step_time_s", "<=")
    assert check.threshold == pytest.approx(total_s / steps, abs=0.005)
    assert check.required and "fp16" in check.source
    for machine in ("H100", "H200"):
        (other,) = configured(machine, topologies=(topology,))
        assert "step_time" not in {check.name for check in other.checks}


def test_other_presets_are_not_held_to_the_guides_facts() -> None:
    facts = {"trainable_parameters", "global_batch", "steps", "step_time", "step_time_as_1x8"}
    for preset, mode in (("mini", "converge"), ("llama_1_1b", "throughput")):
        for plan in configured("H200", presets=(preset,), mode=mode):
            assert not {check.name for check in plan.checks} & facts, plan.id


@pytest.mark.parametrize(("vendor", "machine"), [("cpu", None), ("nvidia", "A100"), ("nvidia", "H200")])
def test_the_global_batch_of_mini_stays_the_same(vendor: str, machine: str | None) -> None:
    request = Request(vendor=vendor, machine=machine, presets=("mini",), **MINE)
    for plan in plans(CATALOG, request):
        assert int(str(plan.params["train_batch_size"])) * plan.world_size == 64, plan.id
