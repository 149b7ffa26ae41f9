"""The shipped vendors: every file resolves, and says what its README says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from suite.catalog import Catalog, load_catalog
from suite.config_name import parse_config_name
from suite.envfile import read_environment
from suite.plan import Plan, Request
from suite.selection import plans
from suite.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
VENDORS = ("cpu", "nvidia")
CONFIGS = sorted(ROOT.glob("suite/vendors/*/*/*/config_*.toml"))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The shipped cases and vendors."""
    return load_catalog(ROOT / "suite")


def planned(catalog: Catalog, vendor: str, machine: str, *topologies: str, **keys: object) -> Sequence[Plan]:
    """The plans of GLM there."""
    request = {"vendor": vendor, "machine": machine, "models": ("glm",), "topologies": topologies} | keys
    return plans(catalog, Request.model_validate(request))


def only(found: Sequence[Plan]) -> Plan:
    """The one plan."""
    (plan,) = found
    return plan


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_resolves_with_all_its_machines(catalog: Catalog, vendor: str) -> None:
    folder = catalog.vendor(vendor)
    assert folder.spec.title
    assert folder.machines
    assert (folder.path / "README.md").is_file()
    for name, machine in folder.machines.items():
        assert machine.match, f"{name} matches no device name"


@pytest.mark.parametrize(
    ("device", "machine"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100-PCIE-16GB", "V100-PCIE"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_device_is_told_by_its_name(catalog: Catalog, device: str, machine: str | None) -> None:
    found = catalog.vendor("nvidia").match_machine(device)
    assert (found.name if found else None) == machine


def test_any_processor_is_the_machine_host(catalog: Catalog) -> None:
    found = catalog.vendor("cpu").match_machine("Some Processor @ 2.00GHz")
    assert found is not None
    assert found.name == "host"
    assert found.peak_tflops == {}


@pytest.mark.parametrize(
    ("machine", "dtype", "peak"),
    [
        ("A100", "tf32", 156),
        ("A100", "bf16", 312),
        ("V100", "fp16", 125),
        ("V100-PCIE", "fp16", 112),
        ("H100", "bf16", 989),
        ("H100-PCIE", "bf16", 756),
        ("H200", "bf16", 989),
        ("H200", "tf32", 494.5),
    ],
)
def test_peaks_are_the_dense_ones(catalog: Catalog, machine: str, dtype: str, peak: float) -> None:
    assert catalog.vendor("nvidia").machine(machine).peak_tflops[dtype] == peak


def test_what_a_chip_has_no_unit_for_is_absent(catalog: Catalog) -> None:
    assert set(catalog.vendor("nvidia").machine("V100").peak_tflops) == {"fp32", "fp16"}
    assert "fp8" not in catalog.vendor("nvidia").machine("A100").peak_tflops


LOGS = {
    "out_of_memory": (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
            "total capacity of 39.59 GiB"
        ),
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    "crash": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    ),
    "environment": (
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: CUDA error: system not yet initialized",
    ),
}


@pytest.mark.parametrize(("category", "line"), [(name, line) for name, lines in LOGS.items() for line in lines])
def test_a_fault_is_told_by_the_log(catalog: Catalog, category: str, line: str) -> None:
    faults = catalog.vendor("nvidia").faults
    assert [fault.category for fault in faults if re.search(fault.pattern, line)][:1] == [category]


@pytest.mark.parametrize(
    "line",
    ["step 100 loss 2.31", "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "NVLink topology: 18 links up"],
)
@pytest.mark.parametrize("vendor", VENDORS)
def test_an_ordinary_line_is_no_fault(catalog: Catalog, vendor: str, line: str) -> None:
    assert [fault.pattern for fault in catalog.vendor(vendor).faults if re.search(fault.pattern, line)] == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.relative_to(ROOT / "suite/vendors").as_posix())
def test_every_configuration_plans_its_presets(catalog: Catalog, path: Path) -> None:
    vendor, model, framework = path.relative_to(ROOT / "suite/vendors").parts[:3]
    if path.name == "config_default.toml":
        machine, topology = next(iter(catalog.vendor(vendor).machines)), Topology.parse("1x1")
    else:
        machine, topology = parse_config_name(path.name)
    assert machine in catalog.vendor(vendor).machines
    case = catalog.case(model, framework).spec
    assert "mini" in case.presets or case.is_script, "only somebody else's program may be too large for any host"
    for preset in ("full", *({"mini"} & set(case.presets))):
        plan = only(
            planned(
                catalog, vendor, machine, str(topology), presets=(preset,), models=(model,), frameworks=(framework,)
            )
        )
        assert plan.division == "closed", plan.division_reasons
        assert plan.topology == topology


@pytest.mark.parametrize("machine", ["A100", "H200"])
def test_mini_keeps_its_global_batch_whatever_the_topology(catalog: Catalog, machine: str) -> None:
    found = planned(catalog, "nvidia", machine, presets=("mini",))
    assert len(found) >= 3
    assert {int(str(plan.params["train_batch_size"])) * plan.world_size for plan in found} == {32}


def test_mini_on_cpu_keeps_its_global_batch_with_one_thread_a_rank(catalog: Catalog) -> None:
    found = planned(catalog, "cpu", "host", presets=("mini",))
    assert [str(plan.topology) for plan in found] == ["1x1", "1x2", "2x1"]
    assert {int(str(plan.params["train_batch_size"])) * plan.world_size for plan in found} == {32}
    assert {plan.params["threads"] for plan in found} == {1}


def test_one_device_trains_the_same_mini_everywhere(catalog: Catalog) -> None:
    host = only(planned(catalog, "cpu", "host", "1x1", presets=("mini",)))
    chip = only(planned(catalog, "nvidia", "H200", "1x1", presets=("mini",)))
    assert {key for key in host.params if host.params[key] != chip.params[key]} <= {"threads"}
    assert host.params["precision"] == "fp32"


@pytest.mark.parametrize(
    ("topology", "batch", "throughput", "speedup", "seconds"),
    [("1x1", 16, 5.5, None, 604800), ("1x8", 8, 42.4, 42.4 / 5.5, 2763), ("2x8", 8, 84.7, 84.7 / 5.5, 604800)],
)
def test_the_published_figures_are_the_thresholds_of_a100(
    catalog: Catalog, topology: str, batch: int, throughput: float, speedup: float | None, seconds: float
) -> None:
    plan = only(planned(catalog, "nvidia", "A100", topology))
    checks = {check.name: check for check in plan.checks}
    assert plan.params["train_batch_size"] == batch
    assert plan.params["precision"] == "tf32"
    assert plan.quality.target == 0.8
    assert checks["throughput"].threshold == throughput
    assert checks["time_to_train"].threshold == seconds
    assert (topology == "1x1") == ("speedup" not in checks)
    if speedup is not None:
        assert checks["speedup"].threshold == pytest.approx(speedup, rel=2e-3)
    for check in plan.checks:
        assert check.source or check.threshold is None or check.name in ("ledger", "ranks_in_sync")


def test_a100_can_see_enough_samples_to_converge(catalog: Catalog) -> None:
    for plan in planned(catalog, "nvidia", "A100"):
        assert int(str(plan.params["max_samples"])) > 100_000


def test_h200_promises_nothing_that_nobody_measured(catalog: Catalog) -> None:
    found = planned(catalog, "nvidia", "H200")
    assert [str(plan.topology) for plan in found] == ["1x1", "1x2", "1x8", "2x8"]
    for plan in found:
        assert plan.params["precision"] == "bf16"
        promised = {check.name for check in plan.checks if check.threshold is not None}
        assert promised.isdisjoint({"throughput", "speedup", "mfu", "memory"})


def test_the_environment_of_a_case_is_parsed() -> None:
    paths = sorted(ROOT.glob("suite/vendors/*/*/*/environment_variables.sh"))
    assert paths
    for path in paths:
        assert read_environment(path, path.name)


def test_every_key_of_a_vendor_is_documented() -> None:
    from suite.plan import DeviceSpec
    from suite.vendor_spec import Detect, Fault, Launch, MachineSpec, Monitor, Probe, VendorSpec

    page = (ROOT / "docs/vendors.md").read_text(encoding="utf-8")
    tables = {
        "": VendorSpec,
        "detect.": Detect,
        "device.": DeviceSpec,
        "probe.": Probe,
        "monitor.": Monitor,
        "launch.": Launch,
        "faults.": Fault,
    }
    keys = [f"{prefix}{name}" for prefix, table in tables.items() for name in table.model_fields]
    keys += list(MachineSpec.model_fields)
    assert [key for key in keys if f"`{key}`" not in page and f"[{key}]" not in page] == []
