"""Everything that is shipped resolves: each configuration, each case, each vendor, on every machine and preset."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.catalog import CaseFolder, VendorFolder, load_catalog
from suite.config_name import DEFAULT_CONFIG, parse_config_name
from suite.envfile import read_environment
from suite.plan import Mode, Request
from suite.selection import plans

SUITE = Path(__file__).resolve().parent.parent / "suite"
CATALOG = load_catalog(SUITE)
CONFIGS = sorted((SUITE / "vendors").glob("*/*/*/config_*.toml"))
MODES: tuple[Mode, ...] = ("converge", "throughput")


def relative(path: Path) -> str:
    return path.relative_to(SUITE).as_posix()


@pytest.mark.parametrize("path", CONFIGS, ids=relative)
def test_a_configuration_resolves_in_every_preset_and_mode(path: Path) -> None:
    vendor, model, framework = path.parts[-4:-1]
    machine, topology = (None, None) if path.name == DEFAULT_CONFIG else parse_config_name(path.name)
    for mode in MODES:
        found = plans(
            CATALOG,
            Request(
                vendor=vendor,
                machine=machine,
                models=(model,),
                frameworks=(framework,),
                presets=("*",),
                topologies=(str(topology),) if topology else (),
                mode=mode,
            ),
        )
        assert {plan.preset for plan in found} == set(CATALOG.case(model, framework).spec.presets)
        assert all(plan.origins.keys() == plan.params.keys() for plan in found)


@pytest.mark.parametrize("vendor", CATALOG.vendors.values(), ids=lambda vendor: vendor.name)
def test_a_vendor_plans_every_case_that_it_configures(vendor: VendorFolder) -> None:
    configured = {tuple(path.parts[-3:-1]) for path in CONFIGS if path.parts[-4] == vendor.name}
    found = plans(CATALOG, Request(vendor=vendor.name, presets=("*",)))
    assert {(plan.model, plan.framework) for plan in found} == configured
    assert len({plan.id for plan in found}) == len(found)
    assert all(plan.id.isascii() for plan in found)


@pytest.mark.parametrize("case", CATALOG.cases, ids=str)
def test_a_case_names_its_targets_and_its_data(case: CaseFolder) -> None:
    for entry in case.data.file:
        assert set(entry.presets) <= set(case.spec.presets)
        own = case.path / "data" / entry.path.removeprefix("case:")
        assert own.is_file() or not entry.path.startswith("case:")
    for scope in (case.spec, *case.spec.preset.values()):
        assert scope.limit is None or scope.limit.source
        assert scope.target is None or scope.target.source


@pytest.mark.parametrize("path", sorted((SUITE / "vendors").rglob("environment_variables.sh")), ids=relative)
def test_an_environment_file_needs_no_shell(path: Path) -> None:
    assert isinstance(read_environment(path, relative(path)), dict)


@pytest.mark.parametrize("vendor", ["cpu", "nvidia"])
def test_a_base_has_the_global_batch_that_it_makes(vendor: str) -> None:
    """A case that states its global batch refuses any other, so a base with the child's batch states its own."""
    catalog = load_catalog(SUITE)
    bases = []
    for preset in ("full", "mini"):
        for plan in plans(catalog, Request(vendor=vendor, models=("bert",), presets=(preset,))):
            bases += [plan.base] if plan.base is not None else []
    assert bases
    for base in bases:
        made = base.params["train_batch_size"] * base.params["gradient_accumulation_steps"] * base.world_size
        assert base.params["global_batch_size"] in (0, made), base.id
