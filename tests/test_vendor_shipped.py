"""The folders of vendors whose chips nobody here has run: what they plan, promise and admit."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from fixtures.plan_text import whole_text
from fixtures.policy import require_consent, vendor_flags
from fixtures.site import Container, Policy, Site
from reports.lost import lost_result
from reports.table import table
from suite.catalog import load_catalog
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.plan import Plan, Request
from suite.selection import plans
from tests.vendor_tools import TOOLS

CATALOG = load_catalog(Path(__file__).resolve().parent.parent / "suite")
COMPLETE = ("amd", "ascend")
FIGURES = r"confidence (low|medium|medium to high|high)"


@cache
def planned(vendor: str, preset: str, model: str | None = None, machine: str | None = None) -> tuple[Plan, ...]:
    """Every plan of a vendor, on all of its machines."""
    request = Request(vendor=vendor, machine=machine, presets=(preset,), models=(model,) if model else ())
    return plans(CATALOG, request)


def test_the_promised_vendors_are_there() -> None:
    promised = {"amd", "ascend", "cambricon", "kunlunxin", "iluvatar", "metax", "mthreads", "hygon"}
    assert promised | {"intel-gaudi", "intel-xpu"} == set(TOOLS)
    assert set(TOOLS) <= set(CATALOG.vendors)


@pytest.mark.parametrize("vendor", TOOLS)
def test_a_folder_that_was_never_run_says_so_in_plan_result_and_table(vendor: str) -> None:
    folder = CATALOG.vendor(vendor)
    assert folder.spec.verified is False
    plan = next(plan for plan in planned(vendor, "mini") if plan.world_size == 1)
    assert plan.verified is False
    text = "\n".join(whole_text([plan], Site(), None))
    assert f"on {vendor} {plan.machine}, 1x1 = 1 device, a vendor folder never run on the chip" in text
    assert "  commands\n" in text
    if plan.device.visible_devices:
        assert plan.device.visible_devices in text
    result = lost_result(plan, Outcome(status="not_started", category="unavailable", reason="no such chip here"), ())
    assert result.verified is False
    assert f"the vendor's folder '{vendor}' was never run on the chip (verified = false)" in table([result])
    assert "verified = false" in (folder.path / "README.md").read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("vendor", TOOLS)
def test_its_plans_promise_nothing_that_nobody_published(vendor: str) -> None:
    for plan in planned(vendor, "full"):
        assert plan.division == "closed", plan.division_reasons
        promised = {check.name for check in plan.checks if check.threshold is not None}
        assert promised.isdisjoint({"throughput", "speedup", "mfu", "memory"}), plan.id


@pytest.mark.parametrize("vendor", TOOLS)
@pytest.mark.parametrize("preset", ["full", "mini"])
def test_a_global_batch_does_not_depend_on_the_topology_where_the_case_fixes_it(vendor: str, preset: str) -> None:
    for plan in planned(vendor, preset):
        made = (
            int(str(plan.params["train_batch_size"]))
            * int(str(plan.params["gradient_accumulation_steps"]))
            * plan.world_size
        )
        if preset == "mini" and plan.model in ("glm", "bert"):
            assert made == 32, plan.id
        elif plan.model == "bert":
            assert made == plan.params["global_batch_size"] == 768, plan.id


@pytest.mark.parametrize("vendor", COMPLETE)
def test_every_machine_of_a_complete_vendor_plans_both_cases_at_each_topology(vendor: str) -> None:
    folder = CATALOG.vendor(vendor)
    for machine in folder.machines:
        found = {(plan.model, str(plan.topology)) for plan in planned(vendor, "full", None, machine)}
        assert found >= {(model, place) for model in ("glm", "bert") for place in ("1x1", "1x8", "2x8")}
    assert (folder.path / "images/pytorch/pytorch_install.sh").is_file()
    for plan in plans(CATALOG, Request(vendor=vendor, models=("bert",), presets=("ngc_*",))):
        batch, steps = plan.params["train_batch_size"], plan.params["gradient_accumulation_steps"]
        assert int(str(batch)) * int(str(steps)) * plan.world_size == 67584, plan.id


@pytest.mark.parametrize(
    ("vendor", "machine", "topology", "precision", "batch", "more"),
    [
        ("metax", "C500", "1x8", "fp32", 16, {"lr": 1e-5, "schedule_steps": 4338}),
        ("metax", "C500", "2x8", "fp32", 16, {"lr": 2e-5}),
        ("kunlunxin", "R300", "1x8", "fp32", 5, {}),
        ("kunlunxin", "R300", "2x8", "fp32", 4, {}),
        ("iluvatar", "BI-V100", "1x1", "fp32", 8, {"schedule_steps": 34704}),
        ("iluvatar", "BI-V100", "1x8", "fp32", 8, {"schedule_steps": 4338}),
        ("hygon", "K100", "1x8", "fp16", 8, {"schedule_steps": 4338}),
    ],
)
def test_published_hyper_parameters_of_glm_are_taken_over(
    vendor: str, machine: str, topology: str, precision: str, batch: int, more: dict[str, object]
) -> None:
    (plan,) = (plan for plan in planned(vendor, "full", "glm", machine) if str(plan.topology) == topology)
    assert (plan.params["precision"], plan.params["train_batch_size"]) == (precision, batch)
    assert {key: plan.params[key] for key in more} == more
    assert plan.quality.target == 0.8
    name = CATALOG.vendor(vendor).path / f"glm/pytorch/config_{machine}x{topology}.toml"
    assert "FlagPerf" in name.read_text(encoding="utf-8")


@pytest.mark.parametrize("vendor", TOOLS)
def test_every_peak_says_how_sure_it_is(vendor: str) -> None:
    machines = CATALOG.vendor(vendor).machines
    assert machines
    for name, machine in machines.items():
        assert machine.match, name
        assert not machine.peak_tflops or re.search(FIGURES, machine.peak_source), name


@pytest.mark.parametrize(
    ("vendor", "machine", "peaks"),
    [
        ("amd", "MI250X", {"fp32": 23.95, "fp16": 191.5, "bf16": 191.5}),
        ("amd", "MI300X", {"fp32": 163.4, "tf32": 653.7, "fp16": 1307, "bf16": 1307, "fp8": 2615}),
        ("amd", "MI355X", {"fp32": 157.3, "fp16": 2500, "bf16": 2500, "fp8": 5000}),
        ("ascend", "910B3", {}),
        ("iluvatar", "BI-V150", {}),
        ("intel-gaudi", "Gaudi2", {"bf16": 432, "fp8": 865}),
        ("metax", "C500", {"fp32": 36, "tf32": 120, "fp16": 240, "bf16": 240}),
        ("mthreads", "S4000", {"fp32": 25, "tf32": 50, "fp16": 100, "bf16": 100}),
    ],
)
def test_peaks_are_dense_ones_of_one_device_and_unknown_ones_are_absent(
    vendor: str, machine: str, peaks: dict[str, float]
) -> None:
    assert dict(CATALOG.vendor(vendor).machine(machine).peak_tflops) == peaks


@pytest.mark.parametrize(
    ("vendor", "name", "machine"),
    [
        ("amd", "AMD Instinct MI300X", "MI300X"),
        ("amd", "AMD Instinct MI308X", None),
        ("amd", "AMD Radeon RX 7900 XTX", None),
        ("ascend", "Ascend910B3", "910B3"),
        ("ascend", "Ascend910B4-1", None),
        ("ascend", "910B1", "910B1"),
        ("hygon", "K100_AI", "K100_AI"),
        ("hygon", "K100", "K100"),
        ("intel-gaudi", "GAUDI3", "Gaudi3"),
        ("intel-xpu", "Intel(R) Data Center GPU Max 1100", "Max-1100"),
        ("intel-xpu", "Intel(R) Arc(TM) A770 Graphics", None),
        ("metax", "MXC500", "C500"),
        ("kunlunxin", "P800 OAM", "P800"),
    ],
)
def test_a_device_is_told_by_its_name(vendor: str, name: str, machine: str | None) -> None:
    found = CATALOG.vendor(vendor).match_machine(name)
    assert (found.name if found else None) == machine


CONSENT = {"ascend": "host_mounts", "hygon": "host_mounts", "intel-gaudi": "runtime"}


@pytest.mark.parametrize("vendor", TOOLS)
def test_a_container_asks_for_no_more_than_its_readme_says(vendor: str) -> None:
    folder = CATALOG.vendor(vendor)
    flags = vendor_flags(folder)
    assert flags.devices or flags.runtime
    assert not flags.privileged
    plan = next(iter(planned(vendor, "mini")))
    site = Site(path="site.toml", container=Container(engine="docker"))
    if vendor not in CONSENT:
        require_consent(plan, site)
        return
    with pytest.raises(UsageProblem, match=f'add "{CONSENT[vendor]}" to'):
        require_consent(plan, site)
    granted = Policy.model_validate({"container": [CONSENT[vendor]]})
    require_consent(plan, Site(path="site.toml", container=Container(engine="docker"), policy=granted))
    assert CONSENT[vendor] in (folder.path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("vendor", "line", "category"),
    [
        ("amd", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
        ("amd", "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f.", "crash"),
        ("amd", "RuntimeError: No HIP GPUs are available", "environment"),
        ("ascend", "RuntimeError: NPU out of memory. Tried to allocate 1.00 GiB (NPU 0; 60.97 GiB)", "out_of_memory"),
        ("ascend", "ImportError: libascend_hal.so: cannot open shared object file: No such file", "environment"),
        ("mthreads", "RuntimeError: MUSA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("cambricon", "RuntimeError: MLU out of memory.", "out_of_memory"),
        ("intel-xpu", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("hygon", "RuntimeError: HIP out of memory.", "out_of_memory"),
    ],
)
def test_a_fault_is_told_by_the_log(vendor: str, line: str, category: str) -> None:
    found = [fault.category for fault in CATALOG.vendor(vendor).faults if re.search(fault.pattern, line)]
    assert found[:1] == [category]


@pytest.mark.parametrize(
    "line", ["step 100 loss 2.31", "memory: 61.2 GiB of 64", "NCCL INFO Channel 00/0", "ECC: enabled"]
)
@pytest.mark.parametrize("vendor", TOOLS)
def test_an_ordinary_line_is_no_fault(vendor: str, line: str) -> None:
    assert not [fault for fault in CATALOG.vendor(vendor).faults if re.search(fault.pattern, line)]
