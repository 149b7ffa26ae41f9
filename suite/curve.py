"""The evaluations and losses of a run as curves."""

from __future__ import annotations

from collections.abc import Sequence

from suite.consistency import meets
from suite.events import Event, finite, shown
from suite.measurement import Point
from suite.plan import Plan, Quality
from suite.rank_stream import NOT_FINITE, RankStream

MAX_LOSSES = 2000


def points(plan: Plan, stream: RankStream) -> tuple[Point, ...]:
    """Every evaluation of the case's metric, timed from run_start (earlier segments added). Raises BadEvents."""
    start = stream.first("run_start")
    origin = 0.0 if start is None else start.t - (start.number("active_s") if start.has("active_s") else 0.0)
    name = plan.quality.metric
    marks = stream.all("eval_result")
    return tuple(
        Point(step=m.count("step"), samples=m.count("samples"), t=m.t - origin, metric=name, value=_value(m, name))
        for m in marks
    )


def first_met(quality: Quality, curve: Sequence[Point]) -> int | None:
    """Index of the first evaluation that meets the target."""
    return next((i for i, point in enumerate(curve) if meets(quality, point.value)), None)


def best(quality: Quality, curve: Sequence[Point]) -> float | None:
    """The best finite value."""
    values = [point.value for point in curve if not isinstance(point.value, str)]
    return (max if quality.better == "higher" else min)(values, default=None)


def thinned(losses: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """At most MAX_LOSSES points, evenly spaced, the first and the last among them."""
    if len(losses) <= MAX_LOSSES:
        return tuple(losses)
    stride = (len(losses) - 1) / (MAX_LOSSES - 1)
    return tuple(losses[round(i * stride)] for i in range(MAX_LOSSES))


def _value(mark: Event, name: str) -> float | str:
    value = mark.table("metrics").get(name)
    number = finite(value)
    if number is not None:
        return number
    if isinstance(value, str) and value in NOT_FINITE:
        return value
    raise mark.bad(f"metrics has {shown(value)} for {name}")
