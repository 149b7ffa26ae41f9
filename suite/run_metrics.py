"""All metrics of one good run, each with its value or the reason why it has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from suite.curve import best, first_met
from suite.events import finite
from suite.ledger import unaccounted_over
from suite.measurement import Missing, Point
from suite.metrics import METRICS
from suite.monitor_log import summarise_monitor
from suite.plan import Plan
from suite.rank_stream import RankStream
from suite.rank_totals import RankTotals
from suite.rates import Numbers, Reasons, effective_dtype, mfu, steady_metrics

GIB = float(1 << 30)


def run_metrics(
    plan: Plan,
    run_dir: Path,
    first: RankStream,
    totals: RankTotals,
    ledger: Mapping[str, float],
    curve: Sequence[Point],
) -> tuple[Numbers, Reasons, dict[str, object]]:
    """(numbers, reasons for the missing ones, facts behind the numbers). `speedup` and `efficiency` need a base."""
    numbers, missing = steady_metrics(totals, timed=plan.evidence != "log")
    facts: dict[str, object] = {}
    _add_quality(plan, first, curve, numbers, missing)
    _add_counts(first, totals, curve, numbers)
    _add_setup(first, numbers, missing)
    _add_stated(first, totals, numbers)
    _add_whole(first, totals, numbers)
    _add_utilisation(plan, first, numbers, missing, facts)
    _add_devices(plan, run_dir, first, totals, numbers, facts)
    in_sync, why = totals.in_sync()
    if plan.world_size > 1 and in_sync is not None:
        numbers["ranks_in_sync"] = float(in_sync)
    elif plan.world_size > 1:
        missing["ranks_in_sync"] = Missing(category="not_observable", reason=why)
    if why and in_sync is False:
        facts["ranks_in_sync"] = why
    numbers["unaccounted_over"] = unaccounted_over(ledger, first.span_s)
    numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
    for name in (*METRICS, plan.quality.metric):
        if name not in numbers and name not in ("speedup", "efficiency"):
            missing.setdefault(name, Missing(category="not_observable", reason=f"nothing in this run shows {name}"))
    return numbers, missing, facts


def train_end(stream: RankStream) -> float | None:
    """When training ended on rank 0's clock: its last window or evaluation."""
    ends = [window.t for window in stream.windows[-1:]]
    ends += [mark.t for mark in stream.marks if mark.name in ("eval_result", "eval_stop")][-1:]
    return max(ends, default=None)


def _add_quality(plan: Plan, first: RankStream, curve: Sequence[Point], numbers: Numbers, missing: Reasons) -> None:
    """Final and best quality, time to train. `met` of the events is not trusted: the target decides."""
    name = plan.quality.metric
    if plan.mode == "throughput":
        reason = "quality is not judged in mode throughput"
        for metric in (name, "quality_best", "time_to_train_s", "time_to_train_resolution_s", "samples_to_target"):
            missing[metric] = Missing(category="not_observable", reason=reason)
        return
    last = curve[-1].value if curve else None
    if last is not None and not isinstance(last, str):
        numbers[name] = last
    else:
        reason = "no evaluation" if last is None else f"the last evaluation is {last}"
        missing[name] = Missing(category="not_measured", reason=reason)
    if (top := best(plan.quality, curve)) is not None:
        numbers["quality_best"] = top
    met = first_met(plan.quality, curve)
    if met is not None:
        numbers["time_to_train_s"] = curve[met].t
        numbers["samples_to_target"] = float(curve[met].samples)
        numbers["time_to_train_resolution_s"] = curve[met].t - (curve[met - 1].t if met else _active(first))
        return
    stop = first.stop.text("reason") if first.stop else ""
    reason = f"the target {plan.quality.target} was not reached; training ended by {stop or 'itself'}"
    for metric in ("time_to_train_s", "time_to_train_resolution_s", "samples_to_target"):
        missing[metric] = Missing(category="not_measured", reason=reason)


def _active(first: RankStream) -> float:
    """Seconds of earlier segments."""
    start = first.first("run_start")
    return start.number("active_s") if start is not None and start.has("active_s") else 0.0


def _add_counts(first: RankStream, totals: RankTotals, curve: Sequence[Point], numbers: Numbers) -> None:
    total = sum(totals.rank_samples)
    # What an evaluation counts beyond this segment's windows was trained in earlier segments.
    seen, before = 0, 0
    ends = {window.last: samples for window, samples in zip(first.windows, totals.window_samples)}
    for window in first.windows:
        seen += ends[window.last]
        if curve and curve[0].step == window.last:
            before = curve[0].samples - seen
    numbers["samples_trained"] = float(total + before)
    numbers["steps"] = float(first.windows[-1].last)
    numbers["skipped_steps"] = float(sum(window.skipped for window in first.windows))
    numbers["step_time_s"] = fmean(totals.slowest)
    if epochs := first.all("epoch_start"):
        numbers["epochs"] = float(len(epochs))
    stops = {mark.count("epoch"): mark.t for mark in first.all("epoch_stop")}
    times = [stops[epoch] - mark.t for mark in epochs if (epoch := mark.count("epoch")) in stops]
    if times and min(times) > 0:
        numbers["epoch_time_s"] = median(times)


def _add_setup(first: RankStream, numbers: Numbers, missing: Reasons) -> None:
    """What the run said of itself before its first step, and the steps that counted."""
    ready, start = first.first("init_stop"), first.first("run_start")
    if ready is not None and ready.has("trainable"):
        numbers["trainable_parameters"] = float(ready.count("trainable"))
    if start is not None and start.has("global_batch"):
        numbers["global_batch"] = float(start.count("global_batch"))
    resumed = start is not None and start.has("resumed_from_step") and start.count("resumed_from_step") > 0
    if resumed and effective_dtype(first.header.table("precision")) == "fp16":
        reason = "the run was resumed, and what the loss scaler skipped before that is not in its events"
        missing["optimizer_steps"] = Missing(category="not_observable", reason=reason)
    else:
        numbers["optimizer_steps"] = numbers["steps"] - numbers["skipped_steps"]


def _add_stated(first: RankStream, totals: RankTotals, numbers: Numbers) -> None:
    """What the log of a script says of its own times. NeMo times its steps, tqdm and the Trainer the whole."""
    told = first.stop.table("stated") if first.stop is not None else {}
    steady = math.inf if totals.steady.reason or not first.windows else first.windows[0].first + totals.steady.first
    timings = [seconds for step, seconds in first.stated if step >= steady]
    step_s = median(timings) if timings else None if first.stated else finite(told.get("step_s"))
    for name, value in (("step_time_stated_s", step_s), ("train_runtime_s", finite(told.get("train_runtime_s")))):
        if value is not None:
            numbers[name] = value


def _add_whole(first: RankStream, totals: RankTotals, numbers: Numbers) -> None:
    ready, start, end = first.first("init_stop"), first.first("run_start"), train_end(first)
    if ready is not None:
        numbers["init_s"] = ready.t - first.header.t
    if start is not None and end is not None and end > start.t:
        numbers["throughput_whole"] = sum(totals.rank_samples) / (end - start.t)


def _add_utilisation(
    plan: Plan, first: RankStream, numbers: Numbers, missing: Reasons, facts: dict[str, object]
) -> None:
    # A task may know its real figure only once its data is open: then the first epoch repeats it.
    marks = [mark for mark in (first.first("epoch_start"), first.first("run_start")) if mark is not None]
    start = next((mark for mark in marks if mark.data.get("flops_per_sample") is not None), None)
    dtype = effective_dtype(first.header.table("precision"))
    flops = start.data["flops_per_sample"] if start else None
    value, why = mfu(plan.machine_facts, dtype, flops, numbers.get("throughput_train"), plan.world_size)
    if why is not None:
        missing["mfu"] = why
    elif value is not None and start is not None:
        numbers["mfu"] = value
        peak = plan.machine_facts.peak_tflops[dtype]
        facts["mfu"] = {"formula": start.text("flops_formula"), "dtype": dtype, "peak_tflops": peak}


def _add_devices(
    plan: Plan, run_dir: Path, first: RankStream, totals: RankTotals, numbers: Numbers, facts: dict[str, object]
) -> None:
    """Memory from the driver, else the monitor; power, energy and utilisation of the training proper only."""
    peaks = [mark.number("peak_bytes") for mark in first.all("memory") if mark.has("peak_bytes")]
    if peaks:
        numbers["memory_peak_gib"] = max(peaks) / GIB
    start, end = first.first("run_start"), train_end(first)
    if start is None or end is None or not first.header.has("t_wall"):
        return
    to_wall = first.header.number("t_wall") - first.header.t
    machine = plan.machine_facts
    begin = _observed_from(plan, first, totals, start.t)
    seen = summarise_monitor(
        run_dir,
        begin + to_wall,
        end + to_wall,
        plan.world_size,
        scope=machine.power_scope,
        per_board=machine.devices_per_board,
    )
    if seen.memory_bytes is not None:
        numbers.setdefault("memory_peak_gib", seen.memory_bytes / GIB)
    if seen.power_w is not None:
        numbers["power_mean_w"] = seen.power_w
    if seen.utilisation is not None:
        numbers["gpu_utilisation_mean"] = seen.utilisation
    if seen.energy_j is not None:
        numbers["energy_j"] = seen.energy_j
        facts["power"] = {
            "scope": machine.power_scope,
            "devices_per_board": machine.devices_per_board,
            "energy_source": seen.energy_source,
            "period_s": None if seen.period_s is None else round(seen.period_s, 3),
        }
        if plan.mode == "throughput" and (rate := numbers.get("throughput_train")) and end > begin:
            numbers["energy_per_sample_j"] = seen.energy_j / (end - begin) / rate
        elif plan.mode == "converge" and (samples := sum(totals.rank_samples)):
            numbers["energy_per_sample_j"] = seen.energy_j / samples


def _observed_from(plan: Plan, first: RankStream, totals: RankTotals, start: float) -> float:
    """Where power and utilisation are looked at: converge pays for all of its training, throughput for steady steps."""
    if plan.mode == "converge" or totals.steady.reason or not first.windows:
        return start
    steady = first.windows[0].first + totals.steady.first
    return next((window.start for window in first.windows if window.first >= steady), start)
