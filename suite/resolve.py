"""One plan from its layers: parameters, checks, base, division, deadlines and digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from suite.catalog import CaseFolder, Catalog
from suite.checks import fixed_checks, time_limit_s
from suite.choice import Choice, derive_seed
from suite.config_name import DEFAULT_CONFIG
from suite.digest import Digests, digest
from suite.envfile import read_environment
from suite.errors import UsageProblem
from suite.layers import Layers, add_sets, add_vendor_file, fold_case, parse_sets
from suite.plan import Check, Deadlines, DeviceSpec, Mode, Plan, Quality, Request, Script, Step, data_ranks
from suite.rates import STEADY
from suite.record import Record
from suite.script import check_readers, planned_script, template_names
from suite.slots import VendorCode
from suite.toml_file import shown
from suite.topology import Topology

TOTAL_CAP_S = 8 * 24 * 3600.0
"""No run may last longer: the longest limit of a case, a week, and a day around it."""

_DIGESTS: WeakKeyDictionary[Catalog, Digests] = WeakKeyDictionary()
"""A catalog is read once, and so is the code that it is about."""

RecordT = TypeVar("RecordT", bound=Record)

_SLACK_S = 900.0
_UNKNOWN_TOTAL_S: dict[Mode, float] = {"converge": 24 * 3600.0, "throughput": 3600.0}
_BATCH = "train_batch_size"
_ACCUMULATION = "gradient_accumulation_steps"
_GLOBAL_BATCH = "global_batch_size"


def _keep_global_batch(layers: Layers, topology: Topology) -> None:
    """A case that states its global batch is refused any other: another per-device batch makes another."""
    batch, steps = layers.params.get(_BATCH), layers.params.get(_ACCUMULATION, 1)
    if layers.params.get(_GLOBAL_BATCH) and isinstance(batch, int) and isinstance(steps, int):
        layers.params[_GLOBAL_BATCH] = batch * steps * data_ranks(layers.params, topology.world_size)
        layers.origins[_GLOBAL_BATCH] = f"{_BATCH} x {_ACCUMULATION} x devices of the base"


class Resolver:
    """Turns choices into plans, for one request. Not `hashed`: without digests, and without --set."""

    def __init__(self, catalog: Catalog, request: Request, *, hashed: bool = True) -> None:
        self._catalog = catalog
        self._hashed = hashed
        self._request = request
        self._vendor = catalog.vendor(request.vendor)
        self._sets = parse_sets(request.sets) if hashed else {}
        self._digests = _DIGESTS.setdefault(catalog, Digests(catalog.suite_dir))
        self._code: dict[CaseFolder, tuple[VendorCode, tuple[Step, ...]]] = {}
        self._environments: dict[CaseFolder, dict[str, str]] = {}
        self._bases: dict[tuple[object, ...], Plan] = {}
        """Topologies of a case share their base: by the choice, the mode it is run in, and the batch it takes over."""
        self._under_base: tuple[Choice, Layers] | None = None
        """The layers of the base asked for last, which is that of the next topology too."""
        self._named: set[str] | None = None
        """The fields that a plan is made with, the same for all."""
        self._shared: dict[Record, Record] = {}
        """Equal records are one object: thousands of plans have the same checks, quality and deadlines."""
        self._origins: dict[Path, str] = {}
        spec = self._vendor.spec
        self._of_vendor = {name: getattr(spec, name).model_dump(mode="json") for name in ("device", "launch")}
        """What a plan's digest has of the vendor."""

    def plan(self, choice: Choice) -> Plan:
        """The plan of `choice`, with its base. Raises UsageProblem."""
        layers = self._layers(choice)
        base, note = self._base(choice, layers)
        speedup = layers.thresholds.get("speedup")
        if base is None and speedup and not speedup[1].endswith(DEFAULT_CONFIG):
            raise UsageProblem(f"{speedup[1]}: [threshold.speedup] of {choice.topology}, which has no base; remove it")
        return self._assemble(choice, layers, base=base, base_note=note)

    def _layers(self, choice: Choice) -> Layers:
        case = choice.case
        layers = fold_case(str(case), case.spec, choice.preset, choice.mode, case.origin)
        folder = self._vendor.case(case.model, case.framework)
        for path, config in folder.layers(choice.machine, choice.topology) if folder else ():
            origin = self._origin(path)
            for scope in config.preset:
                if scope not in case.spec.presets:
                    have = ", ".join(case.spec.presets)
                    raise UsageProblem(f"{origin}: [preset.{scope}] is no preset of {case} (have: {have})")
            add_vendor_file(layers, config, choice.preset, choice.mode, origin)
        add_sets(layers, self._sets)
        return layers

    def _base(self, choice: Choice, layers: Layers) -> tuple[Plan | None, str]:
        """The plan that the speedup is measured against, and what is unusual about it."""
        topology, notes = self._base_topology(choice, layers)
        if topology == choice.topology:
            return None, ""
        if layers.evidence == "log" and choice.case.spec.speedup_metric in STEADY:
            return None, f"a log shows no {choice.case.spec.speedup_metric}: there is no speedup to measure"
        mode: Mode = "throughput" if choice.case.spec.speedup_metric.startswith("throughput") else "converge"
        # Parameters of the child's mode, so that both sides have the same precision.
        based = replace(choice, topology=topology, repeat=choice.repeat + 1)  # before each repeat, after the last
        own = self._base_layers(based)
        if own.params.get(_BATCH) != layers.params.get(_BATCH):
            notes.append(
                f"{_BATCH} {layers.params[_BATCH]} as in {choice.topology}; {topology} itself has {own.params[_BATCH]}"
            )
            own = replace(
                own,
                params={**own.params, _BATCH: layers.params[_BATCH]},
                origins={**own.origins, _BATCH: layers.origins[_BATCH]},
            )
            _keep_global_batch(own, topology)
        others = [key for key, value in own.params.items() if value != layers.params[key]]
        if others:
            notes.append(f"{topology} differs from {choice.topology} in {', '.join(sorted(others))} too")
        key = (based, mode, own.params.get(_BATCH), own.origins.get(_BATCH))
        if key not in self._bases:
            in_mode = self._layers(replace(based, mode=mode))
            own = replace(own, estimate_s=in_mode.estimate_s, deadlines=in_mode.deadlines)
            self._bases[key] = self._assemble(replace(based, mode=mode), own, as_base=True)
        return self._bases[key], "; ".join(notes)

    def _base_layers(self, based: Choice) -> Layers:
        """As `_layers`; not to be changed."""
        if self._under_base is None or self._under_base[0] != based:
            self._under_base = (based, self._layers(based))
        return self._under_base[1]

    def _base_topology(self, choice: Choice, layers: Layers) -> tuple[Topology, list[str]]:
        have = self._vendor.topologies(choice.case.model, choice.case.framework, choice.machine)
        if layers.base:
            topology, origin = layers.base
            if topology not in have:
                raise UsageProblem(
                    f'{origin}: base = "{topology}": no configuration of {choice.case} for {choice.machine} has it'
                    f" (have: {', '.join(map(str, have))})"
                )
            return topology, [f"measured against {topology}, as {origin} says"]
        single = Topology(nnodes=1, nproc=1)
        if single in have:
            return single, []
        smallest = min(have, key=lambda topology: (topology.world_size, topology))
        return smallest, [f"no 1x1 is configured for {choice.machine}: measured against the smallest, {smallest}"]

    def _assemble(
        self,
        choice: Choice,
        layers: Layers,
        *,
        base: Plan | None = None,
        base_note: str = "",
        as_base: bool = False,
    ) -> Plan:
        case, request, vendor = choice.case, self._request, self._vendor
        spec = case.spec
        code, steps = self._vendor_code(case)
        sabotage = None if as_base else request.sabotage
        reasons = [*layers.open_reasons, *code.open_reasons(steps)]
        reasons += [f"--sabotage {sabotage}: broken on purpose"] if sabotage else []
        quality = self._one(_quality(case, layers, choice.preset))
        folder = vendor.case(case.model, case.framework)
        limit = time_limit_s(layers) if choice.mode == "converge" else None
        train_data = str(layers.params.get("train_data", ""))
        plan = Plan(
            id=choice.id(vendor.name),
            model=case.model,
            framework=case.framework,
            vendor=vendor.name,
            machine=choice.machine,
            topology=choice.topology,
            preset=choice.preset,
            mode=choice.mode,
            division="open" if reasons else "closed",
            division_reasons=tuple(reasons),
            evidence=layers.evidence,
            verified=vendor.spec.verified is not False,
            params=dict(sorted(layers.params.items())),
            origins=dict(sorted(layers.origins.items())),
            environment=self._environment(case),
            unset=layers.unset,
            samples_unit=spec.samples_unit,
            quality=quality,
            checks=self._checks(choice, layers, quality, base is not None),
            speedup_metric=spec.speedup_metric,
            base=base,
            base_note=base_note,
            limit_s=limit,
            deadlines=self._one(_deadlines(layers, limit, choice.mode)),
            estimate_s=layers.estimate_s,
            repeat=choice.repeat,
            seeds=tuple(derive_seed(request.seed, str(case), n) for n in range(1, choice.repeat + 1)),
            sabotage=sabotage,
            device=vendor.spec.device,
            exclusive=vendor.spec.exclusive,
            machine_facts=vendor.machine(choice.machine),
            slots=steps,
            script=_script(layers, choice.topology, vendor.spec.device, case.origin),
            case_dir=case.path,
            vendor_dir=vendor.path,
            vendor_case_dir=folder.path if folder else None,
            train_data="" if train_data.startswith("case:") else train_data,
            data_dir=choice.data_dir,
            case_digest=self._case_digest(case),
            measurement_version=self._digests.version(case),
            data_digest=self._digests.data(case, choice.preset),
            plan_digest=self._plan_digest(choice, layers, sabotage, code) if self._hashed else "",
        )
        return self._lean(plan)

    def _lean(self, plan: Plan) -> Plan:
        """pydantic notes in every record which fields it was given: 2 kB, and the same for all plans."""
        self._named = self._named or plan.model_fields_set
        object.__setattr__(plan, "__pydantic_fields_set__", self._named)
        return plan

    def _checks(self, choice: Choice, layers: Layers, quality: Quality, has_base: bool) -> tuple[Check, ...]:
        spec = choice.case.spec
        checks = fixed_checks(
            layers,
            mode=choice.mode,
            topology=choice.topology,
            quality=quality,
            quality_origin=choice.case.origin,
            samples_unit=spec.samples_unit,
            evidence=layers.evidence,
            has_base=has_base,
            repeat=choice.repeat,
        )
        return tuple(map(self._one, checks))

    def _one(self, record: RecordT) -> RecordT:
        """The record of this class that is equal to `record` and that earlier plans have."""
        return cast(RecordT, self._shared.setdefault(record, record))

    def _origin(self, path: Path) -> str:
        if path not in self._origins:
            self._origins[path] = shown(path, self._catalog.suite_dir)
        return self._origins[path]

    def _case_digest(self, case: CaseFolder) -> str:
        if self._hashed:
            return self._digests.case(case)
        self._digests.require_readable(case)
        return ""

    def _plan_digest(self, choice: Choice, layers: Layers, sabotage: str | None, code: VendorCode) -> str:
        """Of what is run: no checks, base, repeats, origins, paths or seeds."""
        what = {
            "case_digest": self._digests.case(choice.case),
            "data_digest": self._digests.data(choice.case, choice.preset),
            "params": layers.params,
            "preset": choice.preset,
            "mode": choice.mode,
            "vendor": self._vendor.name,
            "machine": choice.machine,
            "environment": self._environment(choice.case),
            "unset": layers.unset,
            "sabotage": sabotage,
            "topology": str(choice.topology),
            "code": code.digest,
        }
        return digest({**what, **self._of_vendor})

    def _vendor_code(self, case: CaseFolder) -> tuple[VendorCode, tuple[Step, ...]]:
        if case not in self._code:
            code = VendorCode(self._catalog, self._vendor, case, self._digests)
            self._code[case] = (code, code.steps())
        return self._code[case]

    def _environment(self, case: CaseFolder) -> dict[str, str]:
        """The vendor-wide variables, then those of the case."""
        if case not in self._environments:
            self._environments[case] = self._read_environment(case)
        return self._environments[case]

    def _read_environment(self, case: CaseFolder) -> dict[str, str]:
        environment: dict[str, str] = {}
        for folder in (self._vendor.path / "runtime" / case.framework, self._vendor.path / case.model / case.framework):
            path = folder / "environment_variables.sh"
            if path.is_file():
                environment |= read_environment(path, shown(path, self._catalog.suite_dir.parent))
        return environment


def _quality(case: CaseFolder, layers: Layers, preset: str) -> Quality:
    if layers.target is None:
        raise UsageProblem(
            f"{case.origin}: preset {preset!r} has no [target]; say which value quality must reach, and its source"
        )
    quality = case.spec.quality
    return Quality(
        metric=quality.metric,
        better=quality.better,
        unit=quality.unit,
        requality_within=quality.requality_within,
        target=layers.target.value,
        source=layers.target.source,
        # Of a case that a user has changed, nobody knows what a whole evaluation asks, and how much it counts.
        counted=None if layers.changed else layers.target.counted,
        asked=None if layers.changed else layers.target.asked,
    )


def _script(layers: Layers, topology: Topology, device: DeviceSpec, origin: str) -> Script | None:
    if layers.script is None:
        return None
    if "precision" not in layers.params:
        raise UsageProblem(f"{origin}: a case with a [script] needs a parameter precision; name it under [params]")
    check_readers(layers.script, layers.evidence, origin)
    return planned_script(layers.script, template_names(layers.params, topology, on_cpu=device.type == "cpu"), origin)


def _deadlines(layers: Layers, limit_s: float | None, mode: Mode) -> Deadlines:
    """The case's own, else defaults: the total follows the time limit, else the estimate, with slack."""
    if limit_s is not None:
        total = 1.25 * limit_s + _SLACK_S
    elif layers.estimate_s is not None:
        total = 5 * layers.estimate_s + _SLACK_S
    else:
        total = _UNKNOWN_TOTAL_S[mode]
    return Deadlines.model_validate({"total_s": min(total, TOTAL_CAP_S), **layers.deadlines})
