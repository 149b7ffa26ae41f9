"""Published tables: the rows that vendors' thresholds hold, in the presets that a case's `[table.NAME]` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from suite.catalog import CaseFolder, Catalog, VendorFolder
from suite.errors import UsageProblem
from suite.layers import Layers, add_vendor_file, fold_case
from suite.record import Record, Value
from suite.spec import TableSpec
from suite.toml_file import shown
from suite.topology import Topology
from suite.vendor_spec import Threshold


class Published(Record):
    """What a source says of one preset on one machine."""

    vendor: str
    machine: str
    topology: Topology
    preset: str
    columns: tuple[Value, ...]
    """Values of the table's columns, in their order."""
    rate: float
    speedup: float | None
    source: str


def table_of(case: CaseFolder, name: str) -> TableSpec:
    """The table; its columns are parameters of the case. Raises UsageProblem."""
    spec = case.spec.table[name]
    for column in spec.columns:
        if column not in case.spec.params:
            raise UsageProblem(f"{case.origin}: [table.{name}] columns names {column!r}, which is no parameter of it")
    if not presets_of(case, spec):
        raise UsageProblem(f"{case.origin}: [table.{name}] preset = {spec.preset!r} fits no preset of it")
    return spec


def presets_of(case: CaseFolder, spec: TableSpec) -> tuple[str, ...]:
    """The presets that belong to a table."""
    return tuple(preset for preset in case.spec.presets if fnmatchcase(preset, spec.preset))


def published(catalog: Catalog, case: CaseFolder, spec: TableSpec) -> tuple[Published, ...]:
    """Every row of the table that a vendor's configuration states with its source. Raises UsageProblem."""
    found = []
    for vendor in catalog.vendors.values():
        if vendor.case(case.model, case.framework) is None:
            continue
        for machine in vendor.machines:
            for topology in vendor.topologies(case.model, case.framework, machine):
                found += list(_rows(catalog, case, spec, vendor, machine, topology))
    return tuple(found)


def _rows(
    catalog: Catalog, case: CaseFolder, spec: TableSpec, vendor: VendorFolder, machine: str, topology: Topology
) -> Iterator[Published]:
    folder = vendor.case(case.model, case.framework)
    for preset in presets_of(case, spec) if folder is not None else ():
        layers = fold_case(str(case), case.spec, preset, spec.mode, case.origin)
        for path, config in folder.layers(machine, topology) if folder is not None else ():
            add_vendor_file(layers, config, preset, spec.mode, shown(path, catalog.suite_dir))
        rate = _threshold(layers, "throughput")
        # A threshold of another rate is no row of this table.
        if rate is not None and (rate.metric or "throughput_train") == spec.metric:
            speedup = _threshold(layers, "speedup")
            yield Published(
                vendor=vendor.name,
                machine=machine,
                topology=topology,
                preset=preset,
                columns=column_values(spec, layers.params),
                rate=rate.value,
                speedup=speedup.value if speedup is not None else None,
                source=rate.source,
            )


def _threshold(layers: Layers, name: str) -> Threshold | None:
    found = layers.thresholds.get(name)
    return found[0] if found is not None else None


def column_values(spec: TableSpec, params: Mapping[str, Value]) -> tuple[Value, ...]:
    """The values of a table's columns among parameters; an absent one is empty text."""
    return tuple(params.get(column, "") for column in spec.columns)
