"""What a set of plans will cost on an idle host, before any money is spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from suite.plan import Plan
from suite.record import Record


class Cost(Record):
    """Runs, device-hours and wall-clock; a run without an estimate is counted as unknown, never as zero."""

    runs: int
    """Base runs included."""
    base_runs: int
    unknown_runs: int
    """Without `estimate_s`: the sums below leave them out."""
    device_hours: float
    wall_s: float
    """One run after the other."""

    def __str__(self) -> str:
        known = self.runs - self.unknown_runs
        text = f"{self.runs} runs ({self.base_runs} of them base runs)"
        if not known:
            return f"{text}, device-hours unknown: no case names estimate_s"
        text += f", about {self.device_hours:.3g} device-hours and {self.wall_s / 3600:.3g} h one after the other"
        text += " on an idle host"
        return f"{text}, {self.unknown_runs} runs of unknown length not counted" if self.unknown_runs else text


def cost(plans: Iterable[Plan]) -> Cost:
    """The cost of `plans` in their order; a base that was run before in the session is reused, so it counts once."""
    runs = base_runs = unknown = 0
    device_s = wall_s = 0.0
    for plan, as_base in _to_run(plans):
        runs += plan.repeat
        base_runs += plan.repeat if as_base else 0
        if plan.estimate_s is None:
            unknown += plan.repeat
            continue
        wall_s += plan.repeat * plan.estimate_s
        device_s += plan.repeat * plan.estimate_s * plan.world_size
    return Cost(runs=runs, base_runs=base_runs, unknown_runs=unknown, device_hours=device_s / 3600, wall_s=wall_s)


def _to_run(plans: Iterable[Plan]) -> Iterator[tuple[Plan, bool]]:
    """Each plan that is really run, and whether it is a base; a base's `repeat` counts its runs."""
    done: set[str] = set()
    for plan in plans:
        if plan.base is not None and plan.base.plan_digest not in done:
            done.add(plan.base.plan_digest)
            yield plan.base, True
        done.add(plan.plan_digest)
        yield plan, False
