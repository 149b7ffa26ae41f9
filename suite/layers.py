"""The layers of configuration, folded into one value a key, each with the file or option that set it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from suite.errors import UsageProblem, did_you_mean
from suite.plan import Evidence, Mode
from suite.record import Value
from suite.script import ScriptSpec
from suite.spec import CaseSpec, CheckSpec, Limit, ReferencePoint, Scope, Target
from suite.topology import Topology
from suite.vendor_spec import Threshold, VendorCaseConfig, VendorScope

RESERVED = frozenset({*VendorScope.model_fields, "mode", "preset"})
"""Keys of a vendor's file that are not parameters."""


@dataclass
class Layers:
    """What the layers seen so far add up to."""

    case: str
    """`glm/pytorch`, for messages."""
    mutable: tuple[str, ...]
    params: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    target: Target | None = None
    limit: tuple[Limit, str] | None = None
    """With the file that set it, as are the next two."""
    checks: dict[str, tuple[CheckSpec, str]] = field(default_factory=dict)
    case_checks: frozenset[str] = frozenset()
    """Names of the case's own checks, which no vendor replaces."""
    thresholds: dict[str, tuple[Threshold, str]] = field(default_factory=dict)
    reference_points: tuple[tuple[ReferencePoint, ...], str] = ((), "")
    """With the file that set them."""
    deadlines: dict[str, float] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    base: tuple[Topology, str] | None = None
    estimate_s: float | None = None
    presets: tuple[str, ...] = ()
    """Whose scopes hold, the last one winning."""
    evidence: Evidence = "driver"
    script: ScriptSpec | None = None
    open_reasons: list[str] = field(default_factory=list)
    """Why the division is not `closed`."""
    changed: bool = False
    """A user has changed what the case keeps for itself."""


def fold_case(case: str, spec: CaseSpec, preset: str, mode: Mode, origin: str) -> Layers:
    """The case's own layers: root < mode < preset < preset and mode. Raises UsageProblem."""
    layers = Layers(case=case, mutable=spec.mutable, presets=spec.lineage(preset))
    scopes: list[Scope | None] = [spec, spec.mode.get(mode)]
    for name in layers.presets:
        if name in spec.preset:
            scopes += [spec.preset[name], spec.preset[name].mode.get(mode)]
    for index, scope in enumerate(scopes):
        if scope is not None:
            _set_params(layers, scope.params, origin, known=None if index == 0 else spec.params)
            _set_targets(layers, scope, origin)
    layers.case_checks = frozenset(layers.checks)
    return layers


def add_vendor_file(layers: Layers, config: VendorCaseConfig, preset: str, mode: Mode, origin: str) -> None:
    """One file of a vendor on top. Its root holds for `full` only; it sets mutable keys only. Raises UsageProblem."""
    scopes: list[VendorScope | None] = [config, config.mode.get(mode)] if preset == "full" else []
    for name in layers.presets:
        if name in config.preset:
            scopes += [config.preset[name], config.preset[name].mode.get(mode)]
    for scope in scopes:
        if scope is None:
            continue
        for key in scope.params:
            if key not in layers.params:
                hint = did_you_mean(key, {*layers.mutable, *RESERVED})
                raise UsageProblem(f"{origin}: unknown key {key!r} in {layers.case}{hint}")
            if key not in layers.mutable:
                hint = did_you_mean(key, layers.mutable, label="mutable")
                raise UsageProblem(f"{origin}: {key!r} is not mutable in {layers.case}{hint}")
        _set_params(layers, scope.params, origin, known=layers.params)
        layers.thresholds.update({name: (threshold, origin) for name, threshold in scope.threshold.items()})
        for check in scope.check:
            if check.name in layers.case_checks:
                raise UsageProblem(
                    f"{origin}: [[check]] {check.name} is a check of {layers.case}, which no vendor changes; rename it"
                )
        _add_checks(layers, scope.check, origin)
        layers.unset = tuple(dict.fromkeys((*layers.unset, *scope.unset)))
        layers.base = (scope.base, origin) if scope.base else layers.base
        layers.estimate_s = scope.estimate_s or layers.estimate_s


def add_sets(layers: Layers, sets: Mapping[str, str]) -> None:
    """The --set options on top, where the case has the key. A changed immutable key opens the division."""
    for key, text in sets.items():
        if key not in layers.params:
            continue
        old = layers.params[key]
        try:
            new = parse_as(old, text)
        except ValueError:
            raise UsageProblem(
                f"--set {key}={text}: {key} of {layers.case} is {_kind(old)}, as in {key}={_written(old)}"
            ) from None
        if key not in layers.mutable and new != old:
            layers.open_reasons.append(f"--set {key}={text}: {key} is not mutable in {layers.case}")
            layers.changed = True
        layers.params[key] = new
        layers.origins[key] = "--set"


def parse_sets(sets: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` options by key, the last one winning. Raises UsageProblem."""
    parsed = {}
    for option in sets:
        key, equals, text = option.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise UsageProblem(f"--set {option}: not KEY=VALUE, as in --set lr=0.001")
        parsed[key] = text
    return parsed


def parse_as(old: Value, text: str) -> Value:
    """`text` as a value of the type of `old`. Raises ValueError."""
    if isinstance(old, bool):
        return {"true": True, "false": False}[text] if text in ("true", "false") else _no(text)
    if isinstance(old, int):
        return int(text) if re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)*", text) else _no(text)
    if isinstance(old, float):
        return keep_type(old, float(text) if text.isascii() else _no(text))
    if isinstance(old, str):
        return text
    value: object = tomllib.loads(f"value = {text}").get("value") if "\n" not in text else None
    return keep_type(old, tuple(value)) if isinstance(value, list) else _no(text)


def keep_type(old: Value, new: Value) -> Value:
    """`new` in the type of `old`: an integer may stand for a float, and nothing else for another. Raises ValueError."""
    if isinstance(old, tuple):
        if not isinstance(new, tuple):
            raise ValueError
        kind = old[0] if old else None
        items = new if kind is None else tuple(keep_type(kind, item) for item in new)
        if not all(isinstance(item, bool | int | float | str) for item in items):
            raise ValueError
        return tuple(item for item in items if not isinstance(item, tuple))
    if isinstance(old, float) and isinstance(new, int | float) and not isinstance(new, bool):
        return float(new) if abs(new) <= sys.float_info.max else _no(str(new))
    if type(new) is not type(old):
        raise ValueError
    return new


def _set_params(layers: Layers, params: Mapping[str, Value], origin: str, known: Mapping[str, Value] | None) -> None:
    """Replace values; `known` None: this layer names the keys."""
    for key, new in params.items():
        if known is not None:
            if key not in known:
                hint = did_you_mean(key, known)
                raise UsageProblem(
                    f"{origin}: {key!r} is no parameter of {layers.case}; name it in the root [params]{hint}"
                )
            old = layers.params[key]
            try:
                new = keep_type(old, new)
            except ValueError:
                raise UsageProblem(
                    f"{origin}: {key} = {_written(new)}: {key} of {layers.case} is {_kind(old)}, as in {_written(old)}"
                ) from None
        layers.params[key] = new
        layers.origins[key] = origin


def _set_targets(layers: Layers, scope: Scope, origin: str) -> None:
    layers.target = scope.target or layers.target
    layers.limit = (scope.limit, origin) if scope.limit else layers.limit
    layers.estimate_s = scope.estimate_s or layers.estimate_s
    layers.evidence = scope.evidence or layers.evidence
    layers.script = scope.script.over(layers.script) if scope.script else layers.script
    _add_checks(layers, scope.check, origin)
    layers.reference_points = (scope.reference_points, origin) if scope.reference_points else layers.reference_points
    if scope.deadlines:
        layers.deadlines.update(scope.deadlines.model_dump(exclude_none=True))


def _add_checks(layers: Layers, checks: Sequence[CheckSpec], origin: str) -> None:
    if not checks:
        return
    layers.checks.update({check.name: (check, origin) for check in checks})
    if len({check.name for check in checks}) < len(checks):
        raise UsageProblem(f"{origin}: two [[check]] entries of one scope have the same name; rename one")


def _kind(value: Value) -> str:
    if isinstance(value, tuple):
        return f"a list of {type(value[0]).__name__}" if value else "a list"
    return {bool: "true or false", int: "an integer", float: "a float", str: "text"}[type(value)]


def _written(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _no(text: str) -> NoReturn:
    raise ValueError(text)
