"""The plans of a conformance run. They are made here alone: no case is planned with them, and they never gate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from suite.catalog import Catalog, VendorFolder
from suite.choice import derive_seed, plan_id
from suite.conformance.checks import CHECKS, MODEL, Asked
from suite.digest import code_digest, digest
from suite.envfile import read_environment
from suite.errors import UsageProblem
from suite.plan import Check, Deadlines, Plan, Quality
from suite.record import Value
from suite.toml_file import shown
from suite.topology import Topology

FRAMEWORK = "pytorch"
ORIGIN = "conformance/checks.py"

_HOLD_MIB = 256
_SAMPLES = 4
"""Of the monitor, in the time of rest and again in that of load."""
_LEAST_S, _MOST_S = 3.0, 60.0


def default_topologies(devices: int | None) -> tuple[Topology, ...]:
    """One rank, and two where there are as many devices, or nobody knows yet."""
    pair = devices is None or devices > 1
    return tuple(Topology(nnodes=1, nproc=nproc) for nproc in ((1, 2) if pair else (1,)))


def conformance_plans(
    catalog: Catalog,
    vendor: VendorFolder,
    machine: str,
    topologies: Sequence[Topology],
    *,
    seed: int = 0,
    sabotage: str | None = None,
) -> tuple[Plan, ...]:
    """One plan a topology; the first also looks for what the chip lacks. Raises UsageProblem."""
    return tuple(
        _plan(catalog, vendor, machine, topology, seed=seed, sabotage=sabotage, probes=place == 0 and sabotage is None)
        for place, topology in enumerate(sorted(set(topologies)))
    )


def _plan(
    catalog: Catalog,
    vendor: VendorFolder,
    machine: str,
    topology: Topology,
    *,
    seed: int,
    sabotage: str | None,
    probes: bool,
) -> Plan:
    suite_dir, spec = catalog.suite_dir, vendor.spec
    folder = suite_dir / "conformance" / "chip" / FRAMEWORK
    params = _params(vendor, probes)
    drivers = suite_dir / "drivers" / FRAMEWORK
    code = _code(suite_dir)
    version = (drivers / "VERSION").read_text(encoding="utf-8").strip()
    reasons = ["conformance: nothing is trained"]
    reasons += [f"--sabotage {sabotage}: broken on purpose"] if sabotage else []
    what = {"code": code, "params": params, "vendor": vendor.name, "machine": machine, "topology": str(topology)}
    return Plan(
        id=plan_id(
            model=MODEL,
            framework=FRAMEWORK,
            vendor=vendor.name,
            machine=machine,
            preset="full",
            mode="converge",
            topology=topology,
        ),
        model=MODEL,
        framework=FRAMEWORK,
        vendor=vendor.name,
        machine=machine,
        topology=topology,
        preset="full",
        mode="throughput",  # no target, no curve: the checks alone decide
        division="open",
        division_reasons=tuple(reasons),
        evidence="driver",
        verified=spec.verified is not False,
        params=params,
        origins=dict.fromkeys(params, "conformance_plan.py"),
        environment=_environment(catalog, vendor),
        samples_unit="sample",
        quality=Quality(metric="conformance", better="higher", target=1.0, source="every required check holds"),
        checks=tuple(_check(asked, shared=spec.device.shared) for asked in CHECKS if _asked_of(asked, topology)),
        speedup_metric="throughput_train",
        deadlines=Deadlines(launch_s=300, first_step_s=480, no_progress_s=480, total_s=600),
        estimate_s=60.0,
        seeds=(derive_seed(seed, f"{MODEL}/{FRAMEWORK}", 1),),
        sabotage=sabotage,
        device=spec.device,
        exclusive=spec.exclusive,
        machine_facts=vendor.machine(machine),
        case_dir=folder,
        vendor_dir=vendor.path,
        case_digest=code,
        measurement_version=f"{MODEL}:1 driver/{FRAMEWORK}:{version}",
        plan_digest=digest({**what, "device": spec.device.model_dump(mode="json"), "sabotage": sabotage}),
        data_digest=digest([]),
    )


@cache
def _code(suite_dir: Path) -> str:
    """Of what the ranks run, read once a process as a catalog is."""
    return code_digest([suite_dir / "conformance", suite_dir / "drivers" / FRAMEWORK], (".py",))


def _params(vendor: VendorFolder, probes: bool) -> dict[str, Value]:
    """Rest and load last long enough for the vendor's monitor to see both."""
    monitor = vendor.spec.monitor
    seconds = _SAMPLES * max(monitor.period_s, monitor.min_period_s)
    if seconds > _MOST_S:
        raise UsageProblem(
            f"{vendor.path / 'vendor.toml'}: [monitor] is asked every {seconds / _SAMPLES:g} s, too seldom to see"
            f" a load of {_MOST_S:g} s; set period_s and min_period_s to at most {_MOST_S / _SAMPLES:g}"
        )
    seconds = max(seconds, _LEAST_S)
    return {"hold_mib": _HOLD_MIB, "load_s": seconds, "precision": "fp32", "probes": probes, "rest_s": seconds}


def _environment(catalog: Catalog, vendor: VendorFolder) -> dict[str, str]:
    path = vendor.path / "runtime" / FRAMEWORK / "environment_variables.sh"
    return read_environment(path, shown(path, catalog.suite_dir.parent)) if path.is_file() else {}


def _asked_of(asked: Asked, topology: Topology) -> bool:
    if asked.need == "one_node":
        return topology.nnodes == 1 and topology.nproc > 1
    return asked.need == "" or topology.world_size > 1


def _check(asked: Asked, *, shared: bool) -> Check:
    return Check(
        name=asked.name,
        metric=asked.metric,
        op=asked.op,
        threshold=asked.threshold,
        unit=asked.unit,
        required=asked.required and not (asked.exclusive and shared),
        source=asked.why,
        origin=ORIGIN,
    )
