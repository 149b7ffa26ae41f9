"""One plan from its layers: parameters, checks, base, division, deadlines and digests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from suite.catalog import CaseFolder, Catalog
from suite.checks import fixed_checks, time_limit_s
from suite.config_name import DEFAULT_CONFIG
from suite.digest import Digests, digest
from suite.envfile import read_environment
from suite.errors import UsageProblem
from suite.layers import Layers, add_sets, add_vendor_file, fold_case, parse_sets
from suite.plan import Check, Deadlines, DeviceSpec, Mode, Plan, Quality, Request, Script, Step, data_ranks
from suite.rates import STEADY
from suite.script import check_readers, planned_script, template_names
from suite.slots import VendorCode
from suite.toml_file import shown
from suite.topology import Topology

TOTAL_CAP_S = 8 * 24 * 3600.0
"""No run may last longer: the longest limit of a case, a week, and a day around it."""

_DIGESTS: WeakKeyDictionary[Catalog, Digests] = WeakKeyDictionary()
"""A catalog is read once, and so is the code that it is about."""

_SLACK_S = 900.0
_UNKNOWN_TOTAL_S: dict[Mode, float] = {"converge": 24 * 3600.0, "throughput": 3600.0}
_BATCH = "train_batch_size"
_ACCUMULATION = "gradient_accumulation_steps"
_GLOBAL_BATCH = "global_batch_size"


def plan_id(
    *, model: str, framework: str, vendor: str, machine: str, preset: str, mode: Mode, topology: Topology
) -> str:
    """`glm-pytorch-cpu-host-1x1`; a preset other than `full` and the mode `throughput` stand before the topology."""
    parts = [model, framework, vendor, machine]
    parts += [preset] if preset != "full" else []
    parts += [mode] if mode != "converge" else []
    return "-".join([*parts, str(topology)])


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One test to plan."""

    case: CaseFolder
    machine: str
    topology: Topology
    preset: str
    mode: Mode
    repeat: int
    data_dir: str = ""

    def id(self, vendor: str) -> str:
        """As `plan_id`."""
        return plan_id(
            model=self.case.model,
            framework=self.case.framework,
            vendor=vendor,
            machine=self.machine,
            preset=self.preset,
            mode=self.mode,
            topology=self.topology,
        )


def _keep_global_batch(layers: Layers, topology: Topology) -> None:
    """A case that states its global batch is refused any other: another per-device batch makes another."""
    batch, steps = layers.params.get(_BATCH), layers.params.get(_ACCUMULATION, 1)
    if layers.params.get(_GLOBAL_BATCH) and isinstance(batch, int) and isinstance(steps, int):
        layers.params[_GLOBAL_BATCH] = batch * steps * data_ranks(layers.params, topology.world_size)
        layers.origins[_GLOBAL_BATCH] = f"{_BATCH} x {_ACCUMULATION} x devices of the base"


def derive_seed(base_seed: int, case: str, n: int) -> int:
    """31 bits from the session's seed, the case and the repeat: independent of order, workers and machines."""
    return int.from_bytes(hashlib.sha256(f"{base_seed}:{case}:{n}".encode()).digest()[:4], "big") & 0x7FFFFFFF


class Resolver:
    """Turns choices into plans, for one request."""

    def __init__(self, catalog: Catalog, request: Request) -> None:
        self._catalog = catalog
        self._request = request
        self._vendor = catalog.vendor(request.vendor)
        self._sets = parse_sets(request.sets)
        self._digests = _DIGESTS.setdefault(catalog, Digests(catalog.suite_dir))
        self._code: dict[CaseFolder, tuple[VendorCode, tuple[Step, ...]]] = {}
        self._environments: dict[CaseFolder, dict[str, str]] = {}
        self._bases: dict[tuple[object, ...], Plan] = {}
        """Topologies of a case share their base: by the choice, the mode it is run in, and the batch it takes over."""
        self._checked: dict[Check, Check] = {}
        """Equal checks are one object: thousands of plans have the same."""
        self._launch = self._vendor.spec.launch.model_dump(mode="json")

    def plan(self, choice: Choice) -> Plan:
        """The plan of `choice`, with its base. Raises UsageProblem."""
        layers = self._layers(choice)
        base, note = self._base(choice, layers)
        speedup = layers.thresholds.get("speedup")
        if base is None and speedup and not speedup[1].endswith(DEFAULT_CONFIG):
            raise UsageProblem(f"{speedup[1]}: [threshold.speedup] of {choice.topology}, which has no base; remove it")
        plan = self._assemble(choice, layers, has_base=base is not None)
        return plan.model_copy(update={"base": base, "base_note": note})

    def _layers(self, choice: Choice) -> Layers:
        case = choice.case
        layers = fold_case(str(case), case.spec, choice.preset, choice.mode, case.origin)
        folder = self._vendor.case(case.model, case.framework)
        for path, config in folder.layers(choice.machine, choice.topology) if folder else ():
            origin = shown(path, self._catalog.suite_dir)
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
        own = self._layers(based)
        if own.params.get(_BATCH) != layers.params.get(_BATCH):
            notes.append(
                f"{_BATCH} {layers.params[_BATCH]} as in {choice.topology}; {topology} itself has {own.params[_BATCH]}"
            )
            own.params[_BATCH], own.origins[_BATCH] = layers.params[_BATCH], layers.origins[_BATCH]
            _keep_global_batch(own, topology)
        others = [key for key, value in own.params.items() if value != layers.params[key]]
        if others:
            notes.append(f"{topology} differs from {choice.topology} in {', '.join(sorted(others))} too")
        key = (based, mode, own.params.get(_BATCH), own.origins.get(_BATCH))
        if key not in self._bases:
            in_mode = self._layers(replace(based, mode=mode))
            own.estimate_s, own.deadlines = in_mode.estimate_s, in_mode.deadlines
            self._bases[key] = self._assemble(replace(based, mode=mode), own, has_base=False, as_base=True)
        return self._bases[key], "; ".join(notes)

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

    def _assemble(self, choice: Choice, layers: Layers, *, has_base: bool, as_base: bool = False) -> Plan:
        case, request, vendor = choice.case, self._request, self._vendor
        spec = case.spec
        code, steps = self._vendor_code(case)
        sabotage = None if as_base else request.sabotage
        reasons = [*layers.open_reasons, *code.open_reasons(steps)]
        reasons += [f"--sabotage {sabotage}: broken on purpose"] if sabotage else []
        quality = _quality(case, layers, choice.preset)
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
            checks=self._checks(choice, layers, quality, has_base),
            speedup_metric=spec.speedup_metric,
            limit_s=limit,
            deadlines=_deadlines(layers, limit, choice.mode),
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
            case_digest=self._digests.case(case),
            measurement_version=self._digests.version(case),
            plan_digest="",
            data_digest=self._digests.data(case, choice.preset),
        )
        return plan.model_copy(update={"plan_digest": self._plan_digest(plan, code)})

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
        return tuple(self._checked.setdefault(check, check) for check in checks)

    def _plan_digest(self, plan: Plan, code: VendorCode) -> str:
        """Of what is run: no checks, base, repeats, origins, paths or seeds."""
        names = (
            "case_digest",
            "data_digest",
            "params",
            "preset",
            "mode",
            "vendor",
            "machine",
            "environment",
            "unset",
            "sabotage",
        )
        values = plan.model_dump(mode="json", include={*names, "device"})
        return digest({**values, "topology": str(plan.topology), "launch": self._launch, "code": code.digest})

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
        # Of a case that a user has changed, nobody knows how much a whole evaluation counts.
        counted=None if layers.changed else layers.target.counted,
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
