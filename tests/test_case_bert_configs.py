"""BERT's configurations: the global batch is kept everywhere, and the published table is held to."""

from __future__ import annotations

from typing import Any

import pytest

from suite.catalog import load_catalog
from suite.drivers.events import RunProblem
from suite.plan import Request
from suite.selection import plans
from tests.case_bert import params, task
from tests.one_case import ROOT

CATALOG = load_catalog(ROOT / "suite")


def configured(vendor: str, machine: str | None) -> list[Any]:
    return list(plans(CATALOG, Request(vendor=vendor, machine=machine, models=("bert",), presets=("*",))))


@pytest.mark.parametrize(("vendor", "machine"), [("nvidia", "A100"), ("nvidia", "H200"), ("nvidia", "V100")])
def test_every_configuration_keeps_the_global_batch_or_is_refused(vendor: str, machine: str) -> None:
    refused = []
    for plan in configured(vendor, machine):
        values = dict(plan.params)
        if values["global_batch_size"] and values["global_batch_size"] % (
            int(str(values["train_batch_size"])) * plan.world_size
        ):
            refused.append((plan.preset, str(plan.topology)))
            with pytest.raises(RunProblem, match="no whole gradient_accumulation_steps does"):
                task(values, world=plan.world_size)
        else:
            assert task(values, world=plan.world_size)
    assert refused == ([("ngc_amp_bs128", "4x8"), ("ngc_tf32_bs128", "4x8")] if machine == "V100" else [])


@pytest.mark.parametrize("topology", ["1x1", "1x2", "2x1"])
def test_the_cpu_keeps_the_global_batch_of_mini(topology: str) -> None:
    (plan,) = plans(CATALOG, Request(vendor="cpu", models=("bert",), topologies=(topology,), presets=("mini",)))
    assert int(str(plan.params["train_batch_size"])) * plan.world_size == 32


def test_a_batch_that_does_not_divide_is_refused_with_the_remedy() -> None:
    values = params("ngc_amp_bs96", train_batch_size=48)
    with pytest.raises(RunProblem, match=r"48 x 8 devices .* is 270336, global_batch_size is 67584: set .* = 176$"):
        task(values, world=8)
    with pytest.raises(RunProblem, match="change train_batch_size or the topology"):
        task(params("ngc_amp_bs96", train_batch_size=100), world=8)


TABLE = [
    ("V100", "1x1", "fp32_bs96", 158.611, None),
    ("V100", "1x1", "amp_bs96", 639.16, None),
    ("V100", "1x8", "fp32_bs96", 1232.11, 7.77),
    ("V100", "1x8", "amp_bs96", 5055.56, 7.91),
    ("V100", "4x8", "fp32_bs96", 3496.94, 22.05),
    ("V100", "4x8", "amp_bs96", 16610.6, 25.99),
    ("A100", "1x1", "tf32_bs128", 873.714, None),
    ("A100", "1x1", "amp_bs128", 1542.296, None),
    ("A100", "1x8", "tf32_bs128", 6846.0356, 7.84),
    ("A100", "1x8", "amp_bs128", 12075.6292, 7.83),
]


@pytest.mark.parametrize(("machine", "topology", "preset", "rate", "speedup"), TABLE)
def test_the_published_table_is_held_to(
    machine: str, topology: str, preset: str, rate: float, speedup: float | None
) -> None:
    request = Request(
        vendor="nvidia", machine=machine, models=("bert",), topologies=(topology,), presets=(f"ngc_{preset}",),
        mode="throughput",
    )  # fmt: skip
    (plan,) = plans(CATALOG, request)
    checks = {check.name: check for check in plan.checks}
    assert checks["throughput"].threshold == rate
    assert "21.11" in checks["throughput"].source
    assert "1.11.0a0+b6df043" in checks["throughput"].source
    assert (checks["speedup"].threshold if speedup else None) == speedup
    batch = [int(str(plan.params[key])) for key in ("train_batch_size", "gradient_accumulation_steps")]
    assert batch[0] * batch[1] * plan.world_size == 67584
    assert plan.params["precision"] == {"fp32": "fp32", "tf32": "tf32", "amp": "fp16"}[preset.split("_")[0]]
    assert plan.params["optimizer"] == "lamb"
