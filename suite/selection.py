"""Which tests a request means: filters over cases, presets and topologies, each of them exact about what it missed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from fnmatch import fnmatchcase

from suite.catalog import CaseFolder, Catalog, VendorFolder
from suite.choice import Choice, plan_id
from suite.errors import UsageProblem, did_you_mean
from suite.layers import parse_sets
from suite.plan import CaseRow, Plan, Request
from suite.resolve import Resolver
from suite.topology import Topology

__all__ = ["plan_id", "plans"]


def plans(
    catalog: Catalog, request: Request, *, hashed: bool = True, only: Container[str] | None = None
) -> tuple[Plan, ...]:
    """Every plan that `request` means, sorted, numbers as numbers. Raises UsageProblem; empty only without filters.

    Not `hashed`: names to choose from. `case_digest` and `plan_digest` are empty, and --set, which need only fit what
    is chosen, is left out. `only` these ids are resolved, of all that it means.
    """
    if request.repeat < 1:
        raise UsageProblem(f"--repeat {request.repeat}: at least 1 run is needed")
    for text in request.topologies:
        Topology.parse(text)
    vendor = catalog.vendor(request.vendor)
    cases = _matching_cases(catalog, request)
    machines = (vendor.machine(request.machine).name,) if request.machine else tuple(vendor.machines)
    if request.cases:
        choices = [choice for row in request.cases for choice in _row_choices(catalog, vendor, request, row)]
        choices = [choice for choice in choices if choice.case in cases]
    else:
        choices = _choices(vendor, request, cases, machines)
    choices = [choice for choice in choices if not request.topologies or str(choice.topology) in request.topologies]
    if not choices and _filters(request):
        where = f"{vendor.name} {request.machine or 'machine'}"
        raise UsageProblem(
            f"nothing is planned for {_filters(request)} on {where}; loosen a filter, or add a configuration"
        )
    _known_sets(request, choices)
    if request.fits_only:
        choices = [choice for choice in choices if _fits(choice.topology, request, shared=vendor.spec.device.shared)]
    choices.sort(key=_order)
    _distinct(vendor, choices)
    if only is not None:
        choices = [choice for choice in choices if choice.id(vendor.name) in only]
    resolver = Resolver(catalog, request, hashed=hashed)
    return tuple(resolver.plan(choice) for choice in choices)


def _matching_cases(catalog: Catalog, request: Request) -> tuple[CaseFolder, ...]:
    _each_matches("--model", request.models, (case.model for case in catalog.cases))
    _each_matches("--framework", request.frameworks, (case.framework for case in catalog.cases))
    return tuple(
        case
        for case in catalog.cases
        if _selected(case.model, request.models) and _selected(case.framework, request.frameworks)
    )


def _choices(
    vendor: VendorFolder, request: Request, cases: Sequence[CaseFolder], machines: Sequence[str]
) -> list[Choice]:
    places = [
        (case, machine, topology)
        for case in cases
        for machine in machines
        for topology in vendor.topologies(case.model, case.framework, machine)
    ]
    planned = list(dict.fromkeys(case for case, _, _ in places))
    if places:
        _each_matches("--preset", request.presets, (preset for case in planned for preset in case.spec.presets))
        _each_matches("--topology", request.topologies, (str(topology) for _, _, topology in places))
    return [
        Choice(case=case, machine=machine, topology=topology, preset=preset, mode=request.mode, repeat=request.repeat)
        for case, machine, topology in places
        for preset in _presets(vendor, request, case)
    ]


def _row_choices(catalog: Catalog, vendor: VendorFolder, request: Request, row: CaseRow) -> list[Choice]:
    """One row of --cases; a row that cannot be planned is an error, never dropped."""
    name = f"{row.model}:{row.framework}:{row.machine}:{row.topology.nnodes}:{row.topology.nproc}:{row.repeat}"
    try:
        case = catalog.case(row.model, row.framework)
        machine = vendor.machine(row.machine).name
    except UsageProblem as problem:
        raise UsageProblem(f'--cases row "{name}": {problem}') from None
    have = vendor.topologies(case.model, case.framework, machine)
    if row.topology not in have:
        hint = did_you_mean(str(row.topology), map(str, have))
        raise UsageProblem(
            f'--cases row "{name}": {vendor.name} has no configuration of {case} for {machine} {row.topology}{hint}'
        )
    _each_matches("--preset", request.presets, case.spec.presets)
    presets = _presets(vendor, request, case)
    if not presets:
        hint = did_you_mean(vendor.spec.default_preset, case.spec.presets)
        raise UsageProblem(
            f'--cases row "{name}": no preset {vendor.spec.default_preset!r}, which {vendor.name} defaults to{hint}'
        )
    return [
        Choice(
            case=case,
            machine=machine,
            topology=row.topology,
            preset=preset,
            mode=request.mode,
            repeat=row.repeat,
            data_dir=row.data_dir,
        )
        for preset in presets
    ]


def _presets(vendor: VendorFolder, request: Request, case: CaseFolder) -> tuple[str, ...]:
    wanted = request.presets or (vendor.spec.default_preset,)
    return tuple(preset for preset in case.spec.presets if _selected(preset, wanted))


def _selected(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)


def _each_matches(option: str, wanted: Sequence[str], known: Iterable[str]) -> None:
    """A word of a filter that matches nothing is a mistake, also beside one that does."""
    if not wanted:
        return
    names = sorted(set(known))
    for word in wanted:
        if not any(fnmatchcase(name, word) for name in names):
            raise UsageProblem(f"{option} {word}: matches nothing{did_you_mean(word, names)}")


def _known_sets(request: Request, choices: Sequence[Choice]) -> None:
    known = {key for choice in choices for key in choice.case.spec.params}
    for key, text in parse_sets(request.sets).items():
        if choices and key not in known:
            raise UsageProblem(f"--set {key}={text}: no planned case has a parameter {key!r}{did_you_mean(key, known)}")


def _fits(topology: Topology, request: Request, *, shared: bool) -> bool:
    """The devices of one host serve all its nodes where they are shared."""
    needed = topology.world_size if shared else topology.nproc
    return topology.nnodes <= request.nodes and (request.devices is None or needed <= request.devices)


def _filters(request: Request) -> str:
    """The filters as they were written; empty: none."""
    given = [
        *(f"--model {word}" for word in request.models),
        *(f"--framework {word}" for word in request.frameworks),
        *(f"--preset {word}" for word in request.presets),
        *(f"--topology {word}" for word in request.topologies),
        *(["--cases"] if request.cases else []),
    ]
    return " ".join(given)


def _order(choice: Choice) -> tuple[str, str, str, str, str, int, int]:
    case, topology = choice.case, choice.topology
    return (case.model, case.framework, choice.machine, choice.preset, choice.mode, topology.nnodes, topology.nproc)


def _distinct(vendor: VendorFolder, choices: Sequence[Choice]) -> None:
    """Names hold hyphens, so two folders can make one id: neither may hide the other."""
    seen: dict[str, str] = {}
    for choice in choices:
        name = choice.id(vendor.name)
        source = f"cases/{choice.case} (machine {choice.machine}, preset {choice.preset}, {choice.topology})"
        if name in seen:
            raise UsageProblem(
                f"two plans would have the id {name}: {seen[name]} and {source}; rename one of the folders"
            )
        seen[name] = source
