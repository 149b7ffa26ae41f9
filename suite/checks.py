"""The checks of a plan, fixed at planning: a lost run has the same ones as a good run."""

from __future__ import annotations

from collections.abc import Mapping

from suite.convergence_checks import convergence_checks
from suite.errors import UsageProblem
from suite.expression import ExpressionProblem, evaluate
from suite.layers import Layers
from suite.plan import Check, Evidence, Mode, Quality
from suite.record import Value
from suite.spec import CheckSpec
from suite.topology import Topology
from suite.vendor_spec import ThresholdName

_UNITS: Mapping[ThresholdName, str] = {"time_to_train": "s", "speedup": "x", "mfu": "fraction", "memory": "GiB"}
_METRICS: Mapping[ThresholdName, str] = {
    "time_to_train": "time_to_train_s",
    "throughput": "throughput_train",
    "speedup": "speedup",
    "mfu": "mfu",
    "memory": "memory_peak_gib",
}

_IN_SYNC = Check(
    name="ranks_in_sync",
    metric="ranks_in_sync",
    op="==",
    threshold=1,
    required=True,
    source="all ranks end with the same parameters",
)
_LEDGER = Check(
    name="ledger",
    metric="unaccounted_over",
    op="<=",
    threshold=0,
    unit="s",
    required=True,
    source="at most 2 % or 1 s of rank 0's time may be unaccounted for, whichever is more",
)


def fixed_checks(
    layers: Layers,
    *,
    mode: Mode,
    topology: Topology,
    quality: Quality,
    quality_origin: str,
    samples_unit: str,
    evidence: Evidence,
    has_base: bool,
    repeat: int = 1,
) -> tuple[Check, ...]:
    """Every check in the order of judging. Raises UsageProblem for a `[[check]]` whose value has none."""
    checks = [_quality(quality, quality_origin), _time_to_train(layers)] if mode == "converge" else []
    checks.append(_declared("throughput", layers, unit=f"{samples_unit}/s"))
    if has_base:
        checks.append(_declared("speedup", layers))
    names: tuple[ThresholdName, ...] = ("mfu", "memory")
    checks += [_declared(name, layers) for name in names if name in layers.thresholds]
    if topology.world_size > 1:
        checks.append(_IN_SYNC if evidence != "log" else _IN_SYNC.model_copy(update={"required": False}))
    checks += convergence_checks(layers, topology, repeat, samples_unit) if mode == "converge" else []
    return (*checks, _LEDGER, *(_own(spec, origin, layers, topology) for spec, origin in layers.checks.values()))


def time_limit_s(layers: Layers) -> float | None:
    """The seconds after which time_to_train has failed for certain; None: no limit."""
    if "time_to_train" in layers.thresholds:
        threshold, _ = layers.thresholds["time_to_train"]
        return threshold.value * (1 + threshold.tolerance)
    return layers.limit[0].time_to_train_s if layers.limit else None


def _quality(quality: Quality, origin: str) -> Check:
    return Check(
        name="quality",
        metric=quality.metric,
        op=">=" if quality.better == "higher" else "<=",
        threshold=quality.target,
        unit=quality.unit,
        required=True,
        source=quality.source,
        origin=origin,
    )


def _time_to_train(layers: Layers) -> Check:
    if "time_to_train" in layers.thresholds or layers.limit is None:
        return _declared("time_to_train", layers)
    limit, origin = layers.limit
    return Check(
        name="time_to_train",
        metric=_METRICS["time_to_train"],
        op="<=",
        threshold=limit.time_to_train_s,
        unit=_UNITS["time_to_train"],
        required=True,
        source=limit.source,
        origin=origin,
    )


def _declared(name: ThresholdName, layers: Layers, unit: str = "") -> Check:
    """The check of a vendor's threshold; not required where nobody declared one."""
    threshold, origin = layers.thresholds.get(name, (None, ""))
    return Check(
        name=name,
        metric=(threshold.metric if threshold else None) or _METRICS[name],
        op="<=" if name in ("time_to_train", "memory") else ">=",
        threshold=threshold.value if threshold else None,
        unit=unit or _UNITS[name],
        required=threshold is not None,
        source=threshold.source if threshold else "",
        origin=origin,
        tolerance=threshold.tolerance if threshold else 0.0,
    )


def _own(spec: CheckSpec, origin: str, layers: Layers, topology: Topology) -> Check:
    names = {**_numbers(layers.params), **_shape(topology)}
    try:
        value = evaluate(spec.value, names) if isinstance(spec.value, str) else spec.value
    except ExpressionProblem as problem:
        raise UsageProblem(f"{origin}: [[check]] {spec.name}: value = {spec.value!r}: {problem}") from None
    return Check(
        name=spec.name,
        metric=spec.metric,
        op=spec.op,
        threshold=value,
        unit=spec.unit,
        required=spec.required,
        source=spec.source,
        origin=origin,
        tolerance=spec.tolerance,
    )


def _numbers(params: Mapping[str, Value]) -> dict[str, float]:
    return {
        key: value for key, value in params.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _shape(topology: Topology) -> dict[str, float]:
    return {"nnodes": topology.nnodes, "nproc": topology.nproc, "world": topology.world_size}
