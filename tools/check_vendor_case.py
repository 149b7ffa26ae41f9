"""A vendor's folder of one case: which topologies it covers, what it sets, what it promises, which slots it fills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from suite.catalog import CaseFolder, Catalog, VendorFolder
from suite.config_name import DEFAULT_CONFIG, parse_config_name
from suite.digest import Digests
from suite.errors import UsageProblem, did_you_mean
from suite.plan import Mode, Request
from suite.selection import plans
from suite.slots import RUNTIME, UNREADABLE, VendorCode
from suite.toml_file import read_table, read_toml, shown
from suite.topology import Topology
from suite.vendor_spec import VendorCaseConfig
from tools.check_recorded import Recorded, recorded
from tools.check_threshold import check_thresholds
from tools.finding import Finding, told

MODES: tuple[Mode, ...] = ("converge", "throughput")
THE_CASES = (
    "target",
    "limit",
    "quality",
    "mutable",
    "reference_points",
    "measurement_version",
    "evidence",
    "deadlines",
)
"""Tables and keys that only a case may set."""


def check_vendor_case(folder: Path, vendor: VendorFolder, catalog: Catalog, root: Path) -> Iterator[Finding]:
    """Every file of <model>/<framework> in a vendor's folder."""
    label, name = shown(folder, root), f"{folder.parent.name}/{folder.name}"
    case = next((case for case in catalog.cases if str(case) == name), None)
    if case is None:
        hint = did_you_mean(name, map(str, catalog.cases))
        yield Finding(label, f"no case {name} under suite/cases{hint}", "rename the folder, or remove it")
        return
    configs = sorted(folder.glob("config*.toml"))
    if not configs:
        yield Finding(label, "no configuration, so nothing is planned", f"write {DEFAULT_CONFIG}, an empty one will do")
    misnamed = [finding for path in configs if (finding := _misnamed(path, vendor, catalog, shown(path, root)))]
    yield from misnamed
    for path in configs:
        runs = () if misnamed else recorded(catalog.baselines_dir, path)
        yield from _check_config(path, shown(path, root), runs)
    if configs and not misnamed:
        yield from _check_topologies(folder, vendor, case, label)
        yield from _check_plans(folder, vendor, case, catalog, label)
    yield from _check_slots(vendor, case, catalog, label)


def _misnamed(path: Path, vendor: VendorFolder, catalog: Catalog, label: str) -> Finding | None:
    """What is wrong with the name of a file, which says for which machine and topology it is."""
    if path.name == DEFAULT_CONFIG:
        return None
    try:
        machine, _ = parse_config_name(path.name)
    except UsageProblem:
        remedy = f"call it {DEFAULT_CONFIG} or config_<machine>x<nodes>x<devices>.toml"
        return Finding(label, "no configuration's name", remedy)
    known = (vendor.path / "machines" / f"{machine}.toml").is_file()
    return None if known else _foreign(machine, vendor, catalog, label)


def _check_config(path: Path, label: str, runs: Recorded) -> Iterator[Finding]:
    """One file: its types, the case's own keys left alone, its thresholds."""
    try:
        touched = sorted(_touched(read_toml(path, label)))
        for key in touched:
            remedy = "remove it: no vendor moves a target or a limit"
            yield Finding(label, f"sets {key}, which is the case's own", remedy)
        if not touched:
            yield from _check_scopes(read_table(path, VendorCaseConfig, label), label, runs)
    except UsageProblem as problem:
        yield told(problem, label)


def _touched(table: Mapping[str, object], where: str = "") -> Iterator[str]:
    for key, value in table.items():
        if key in THE_CASES:
            yield f"{where}{key}"
        elif isinstance(value, dict) and key != "threshold":
            yield from _touched(value, f"{where}{key}.")


def _check_scopes(config: VendorCaseConfig, label: str, runs: Recorded) -> Iterator[Finding]:
    yield from check_thresholds(config, "", label, "full", runs)
    for mode, scope in config.mode.items():
        yield from check_thresholds(scope, f"mode.{mode}.", label, "full", runs)
    for preset, modal in config.preset.items():
        yield from check_thresholds(modal, f"preset.{preset}.", label, preset, runs)
        for mode, scope in modal.mode.items():
            yield from check_thresholds(scope, f"preset.{preset}.mode.{mode}.", label, preset, runs)


def _foreign(machine: str, vendor: VendorFolder, catalog: Catalog, label: str) -> Finding:
    owners = [other.name for other in catalog.vendors.values() if (other.path / f"machines/{machine}.toml").is_file()]
    if owners:
        remedy = f"move it to that vendor's folder; a figure of one chip says nothing of {vendor.name}'s"
        return Finding(label, f"{machine} is a machine of {' and '.join(owners)}", remedy)
    have = [path.stem for path in (vendor.path / "machines").glob("*.toml")]
    return Finding(label, f"no machines/{machine}.toml{did_you_mean(machine, have)}", "write it, or rename this file")


def _check_topologies(folder: Path, vendor: VendorFolder, case: CaseFolder, label: str) -> Iterator[Finding]:
    """1x1 and each listed topology, on one machine or another. A script trains where its authors ran it."""
    if (folder / DEFAULT_CONFIG).is_file() or case.spec.is_script:
        return
    have = {parse_config_name(path.name)[1] for path in folder.glob("config_*x*.toml")}
    wanted = {Topology(nnodes=1, nproc=1), *vendor.spec.topologies}
    for topology in sorted(wanted - have):
        remedy = f"write config_<machine>x{topology}.toml or {DEFAULT_CONFIG}, or take it out of vendor.toml"
        yield Finding(label, f"no configuration of {topology}, which vendor.toml lists or a speedup needs", remedy)


def _check_plans(
    folder: Path, vendor: VendorFolder, case: CaseFolder, catalog: Catalog, label: str
) -> Iterator[Finding]:
    """Every machine, topology, preset and mode resolves."""
    for path in sorted(folder.glob("config_*.toml")):
        machine, topology = (None, None) if path.name == DEFAULT_CONFIG else parse_config_name(path.name)
        for mode in MODES:
            wanted = Request(
                vendor=vendor.name,
                machine=machine,
                models=(case.model,),
                frameworks=(case.framework,),
                presets=("*",),
                topologies=(str(topology),) if topology else (),
                mode=mode,
            )
            try:
                plans(catalog, wanted)
            except UsageProblem as problem:
                yield _below(told(problem, label), vendor, label)


def _below(finding: Finding, vendor: VendorFolder, label: str) -> Finding:
    """Plans name files below suite/; a person finds them below the checkout."""
    inside = f"vendors/{vendor.name}/"
    if finding.file.startswith(inside):
        here = label.partition(f"{vendor.name}/")[0]
        return finding._replace(file=f"{here}{finding.file.removeprefix('vendors/')}")
    return finding._replace(file=f"suite/{finding.file}") if finding.file.startswith("cases/") else finding


def _check_slots(vendor: VendorFolder, case: CaseFolder, catalog: Catalog, label: str) -> Iterator[Finding]:
    extern = f"{label}/extern"
    folder = vendor.path / case.model / case.framework / "extern"
    if folder.is_dir() and not (folder / "__init__.py").is_file():
        yield Finding(extern, "no __init__.py", "write one that exports fill(slots): docs/driver.md")
    try:
        steps = VendorCode(catalog, vendor, case, Digests(catalog.suite_dir)).steps()
    except UsageProblem as problem:
        yield told(problem, extern)
        return
    declared = case.spec.extern.slots
    for step in steps:
        if step.slot == UNREADABLE:
            yield Finding(extern, "which slots fill() fills cannot be read", 'write slots["NAME"] = … for each')
        elif step.slot not in (*declared, RUNTIME):
            have = ", ".join(declared) or "none"
            yield Finding(extern, f"{case} declares no slot {step.slot!r} (have: {have})", "fill a declared one only")
