"""Step times, throughput and utilisation from the reduced ranks: work over time, never a mean of rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, pstdev

from suite.events import finite
from suite.flops import utilisation
from suite.measurement import Missing
from suite.plan import Machine
from suite.rank_totals import RankTotals

STEADY = (
    *("throughput_train", "throughput_core", "tokens_per_s", "step_time_median_s", "step_time_p95_s"),
    *("step_time_p99_s", "step_time_max_s", "step_time_cv", "step_time_drift", "data_wait_fraction", "rank_spread"),
    "rank_imbalance",
)
"""Metrics that need a steady state."""

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Long names of dtypes, as some frameworks tell them."""

Numbers = dict[str, float]
Reasons = dict[str, Missing]


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours."""
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def steady_metrics(totals: RankTotals, *, timed: bool = True) -> tuple[Numbers, Reasons]:
    """Every metric of STEADY, or why it is missing; not `timed`: nobody waited for the devices at a window's end."""
    if not timed:
        reason = "a log shows when lines were printed, not when the devices had done their work"
        return {}, {name: Missing(category="not_observable", reason=reason) for name in STEADY}
    steady = totals.steady
    if steady.reason:
        return {}, {name: Missing(category="no_steady_state", reason=steady.reason) for name in STEADY}
    steps = sorted(totals.slowest[steady.first :])
    sums = totals.sums()
    mean = fmean(steps)
    numbers: Numbers = {
        "step_time_median_s": median(steps),
        "step_time_p95_s": percentile(steps, 0.95),
        "step_time_p99_s": percentile(steps, 0.99),
        "step_time_max_s": steps[-1],
        "step_time_drift": steady.drift,
    }
    _ratio(numbers, "step_time_cv", pstdev(steps, mean), mean)
    _ratio(numbers, "throughput_train", sums.samples, sums.seconds)
    _ratio(numbers, "throughput_core", sums.samples, sums.seconds - sums.wait_s)
    if (wait := totals.wait_fraction()) is not None:
        numbers["data_wait_fraction"] = wait
    if sums.tokens:
        _ratio(numbers, "tokens_per_s", sums.tokens, sums.seconds)
    if len(totals.medians) > 1:
        _ratio(numbers, "rank_spread", max(totals.medians), median(totals.medians))
    if (imbalance := totals.imbalance()) is not None:
        numbers["rank_imbalance"] = imbalance
    alone = "a run of one rank has no spread"
    untold = alone if len(totals.medians) < 2 else "not every rank tells the time of its forward passes"
    why = {"rank_spread": alone, "rank_imbalance": untold, "tokens_per_s": "the events count no tokens"}
    reasons = {
        name: Missing(category="not_observable", reason=why.get(name, "no time passed in the steady steps"))
        for name in STEADY
        if name not in numbers
    }
    return numbers, reasons


def effective_dtype(precision: Mapping[str, object]) -> str:
    """The dtype whose peak bounds this run: `compute` of the header, which the rank found by computing."""
    compute = precision.get("compute") or precision.get("autocast")
    return DTYPES.get(str(compute), str(compute or "unknown"))


def mfu(
    machine: Machine, dtype: str, flops_per_sample: object, rate: float | None, devices: int
) -> tuple[float | None, Missing | None]:
    """(utilisation, None) or (None, why not). An unknown peak or an uncounted model gives none, never zero."""
    flops = finite(flops_per_sample)
    peak = machine.peak_tflops.get(dtype)
    if rate is None:
        return None, Missing(category="no_steady_state", reason="no throughput_train to compute it from")
    if not flops or flops < 0:
        return None, Missing(category="not_observable", reason="the case counts no FLOP of a sample")
    if not peak:
        return None, Missing(category="not_observable", reason=f"machine {machine.name} has no peak for {dtype}")
    return utilisation(flops, rate, peak * devices), None


def _ratio(numbers: Numbers, name: str, work: float, time: float) -> None:
    """Set work / time, or leave it missing where no time passed."""
    if time > 0 and math.isfinite(work / time):
        numbers[name] = work / time
