"""How a case gains from more devices: the plans of one session that differ in their topology alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from suite.metrics import METRICS
from suite.result import Result

USUAL = "throughput_train"
"""What speed is measured by where a plan has no base that says otherwise."""


class ScalingPoint(NamedTuple):
    """One topology's speed."""

    devices: float
    rate: float
    """Work over time, in a unit that all points of one picture share."""
    label: str


def family(result: Result) -> tuple[str, ...]:
    """What plans of one row of the overview have in common: all but the topology."""
    return (result.model, result.framework, result.vendor, result.machine, result.preset, result.mode)


def scaling(result: Result, results: Sequence[Result]) -> tuple[ScalingPoint, ...]:
    """The points of `result`'s family, and its base, by number of devices; fewer than two are no scaling."""
    metric = result.base.metric if result.base is not None else USUAL
    kin = [one for one in results if family(one) == family(result)]
    points = {
        (float(one.topology.world_size), str(one.topology)): _rate(metric, one.metrics[metric].value)
        for one in kin
        if metric in one.metrics and one.metrics[metric].value > 0
    }
    if (base := _base_point(result, metric)) is not None and base[0] not in {devices for devices, _ in points}:
        points[(base[0], "base")] = base[1]
    made = sorted(ScalingPoint(devices, rate, label) for (devices, label), rate in points.items())
    return tuple(made) if len({point.devices for point in made}) > 1 else ()


def _base_point(result: Result, metric: str) -> tuple[float, float] | None:
    """(devices, rate) of the base; how many devices it has follows from speedup over efficiency."""
    base, speedup, efficiency = result.base, result.metrics.get("speedup"), result.metrics.get("efficiency")
    if base is None or base.value is None or base.value <= 0 or speedup is None or efficiency is None:
        return None
    if speedup.value <= 0 or efficiency.value <= 0:
        return None
    devices = round(result.topology.world_size * efficiency.value / speedup.value)
    return (float(devices), _rate(metric, base.value)) if devices >= 1 else None


def _rate(metric: str, value: float) -> float:
    """Speed: of a metric that is better when lower, an epoch's time say, the inverse."""
    known = METRICS.get(metric)
    return 1 / value if known is not None and known.better == "lower" else value
