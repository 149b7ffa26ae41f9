"""Gates over simulated runs, by the suite's own judge: how often the interval holds the truth, and what it decides."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.scaling_hosts import Host
from suite.baseline import FoundBase
from suite.catalog import load_catalog
from suite.checking import Evidence, judge_check
from suite.measurement import Measurement
from suite.plan import Check, Plan, Request
from suite.result import Base, CheckResult
from suite.selection import plans

SUITE = Path(__file__).resolve().parent.parent / "suite"
BAND = (0.93, 0.985)
"""Coverage that counts as 19 of 20."""
BASE_RATE = 100.0


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Of many gates with one truth."""

    gates: int
    held: int
    half_width: float
    """Median, relative."""

    @property
    def share(self) -> float:
        """How often the interval held the truth."""
        return self.held / self.gates

    @property
    def margin(self) -> float:
        """Half the 95 % interval of `share` that so many gates leave, were the true one 95 %."""
        return 1.96 * math.sqrt(0.95 * 0.05 / self.gates)

    @property
    def is_calibrated(self) -> bool:
        """Whether `share` lies in the band."""
        return BAND[0] <= self.share <= BAND[1]


def gate_plan(repeat: int, threshold: float, *, vendor: str = "cpu", topology: str = "1x2") -> Plan:
    """A shipped plan with a base, whose efficiency is held to `threshold`."""
    request = Request(vendor=vendor, models=("glm",), topologies=(topology,), mode="throughput", repeat=repeat)
    plan = plans(load_catalog(SUITE), request)[0]
    check = Check(name="speedup", metric="efficiency", op=">=", threshold=threshold, required=True, source="stated")
    return plan.model_copy(update={"checks": (check,)})


def gate(plan: Plan, truth: float, host: Host, chance: random.Random) -> CheckResult:
    """One gate: `plan.repeat` runs between their bases, on that host, at that true efficiency."""
    assert plan.base is not None
    devices = plan.world_size / plan.base.world_size
    speeds = [math.exp(deviation) for deviation in host.deviations(2 * plan.repeat + 1, chance)]
    metric = plan.speedup_metric
    rates = [BASE_RATE * devices * truth * speed for speed in speeds[1::2]]
    runs = tuple(
        Measurement(n=n, seed=n, folder=f"r{n}", metrics={metric: rate}) for n, rate in enumerate(rates, start=1)
    )
    values = tuple(BASE_RATE * speed for speed in speeds[::2])
    mean = sum(values) / len(values)
    base = Base(
        id=plan.base.id, plan_digest="", metric=metric, value=mean, values=values, unit="", folder="base", note=""
    )
    evidence = Evidence(plan=plan, runs=runs, base=FoundBase(base, interleaved=True), lost="")
    return judge_check(plan.checks[0], evidence)


def interval(result: CheckResult) -> tuple[float, float]:
    """The interval that the judge gave. Raises ValueError where it gave none."""
    low, high = (result.baseline or {}).get("low"), (result.baseline or {}).get("high")
    if not isinstance(low, float) or not isinstance(high, float):
        raise ValueError(f"{result.name}: the judge gave no interval ({result.reason})")
    return low, high


def coverage(results: Sequence[CheckResult], truth: float) -> Coverage:
    """Of gates that were judged."""
    ends = [interval(result) for result in results]
    held = sum(low <= truth <= high for low, high in ends)
    return Coverage(gates=len(ends), held=held, half_width=median(math.log(high / low) / 2 for low, high in ends))


def answers(results: Sequence[CheckResult]) -> dict[str, float]:
    """The shares of red, open and green gates."""
    words = {"red": "fail", "open": "inconclusive", "green": "pass"}
    return {name: sum(result.status == status for result in results) / len(results) for name, status in words.items()}
