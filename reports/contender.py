"""One plan of one side of `versus`: what it was, what its runs came to, and how many of them missed the target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from reports.censored import Amount
from suite.baseline_file import Baseline
from suite.figures import Figures, figures_of
from suite.plan import Mode, data_ranks
from suite.record import Record, Value
from suite.result import Result, RunResult

ENDS_AT_TARGET: Mapping[str, str] = {"time_to_train_s": "s", "samples_to_target": "samples", "energy_j": "J"}
"""Metrics that mean nothing for a run that missed the target, but as bounds."""

RATES = (
    "throughput_train", "throughput_core", "tokens_per_s", "step_time_median_s", "mfu", "memory_peak_gib",
    "power_mean_w", "energy_per_sample_j", "quality_best",
)  # fmt: skip
"""Metrics of every run that was measured, in the order in which they are shown."""

COMPUTED_HOW = frozenset(
    {
        "activation_checkpointing", "autotune", "compile", "compile_graphs", "eval_batch_size",
        "gradient_accumulation_steps", "loader", "log_freq", "num_workers", "prefetch_factor", "reshard_after_forward",
        "sharding", "tensor_parallel", "threads", "throughput_steps", "throughput_warmup_steps", "train_batch_size",
    }
)  # fmt: skip
"""Parameters that say how a training is computed, not what is learnt: the global batch is told apart from them."""


class Contender(Record):
    """A measured plan, reduced to what two chips are compared by."""

    id: str
    kept: Literal["result", "baseline"]
    model: str
    framework: str
    vendor: str
    machine: str
    topology: str
    devices: int
    preset: str
    mode: Mode
    data_digest: str
    target: str
    """`accuracy >= 0.7`; empty: not kept, or none in this mode."""
    measurement_version: str
    outcome: str
    facts: Mapping[str, str]
    """What is shown as the same or as different, in its order; what a baseline does not keep is absent."""
    recipe: Mapping[str, str] | None
    """What decides what is learnt, beside data and target; None: a baseline keeps no parameters."""
    amounts: Mapping[str, Amount]
    runs: int
    """All that were made or planned."""
    missed: int = 0
    """Runs that ended well without the target."""
    lost: int = 0
    """Runs that were lost or void: nothing they say is used."""
    power_scope: str = "unknown"
    """What one power reading covers: `die`, `board`, `node`."""


def from_result(result: Result) -> Contender:
    """A contender with everything that result.json keeps."""
    check = next((check for check in result.checks if check.name == "quality"), None)
    target = f"{check.metric} {check.op} {check.threshold:.6g}" if check and check.threshold is not None else ""
    target = target if result.mode == "converge" else ""
    batch = _global_batch(result)
    power = result.environment.get("power")
    lost = [run for run in result.runs if run.outcome.status != "passed"]
    absent = max(len(result.seeds) - len(result.runs), 0) if result.outcome.status != "not_started" else 0
    missed = [run for run in result.runs if run not in lost and result.mode == "converge" and not _met(run)]
    return Contender.model_validate(
        {
            **_common(figures_of(result)),
            "kept": "result",
            "target": target,
            "facts": _facts(result, target, batch),
            "recipe": {
                "global_batch": batch,
                "precision": _compute(result),
                **{name: _shown(value) for name, value in result.params.items() if name not in COMPUTED_HOW},
            },
            "amounts": dict(_amounts(result, absent)),
            "runs": len(result.runs) + absent,
            "missed": len(missed),
            "lost": len(lost) + absent,
            "power_scope": str(power.get("scope", "unknown")) if isinstance(power, Mapping) else "unknown",
        }
    )


def from_baseline(baseline: Baseline, power_scope: str = "unknown") -> Contender:
    """A contender with what a baseline keeps; its runs all passed, or it would be none."""
    metric = baseline.metric
    names = {name: name for name in ("time_to_train_s", *RATES)} | {"samples_to_target": "samples_trained"}
    kept = {
        name: metric[source]
        for name, source in names.items()
        if source in metric and (baseline.mode == "converge" or name in RATES)
    }
    told = {name: text for name, text in baseline.environment.items() if name != "precision"}
    return Contender.model_validate(
        {
            **_common(baseline),
            "kept": "baseline",
            "target": "",
            "facts": {
                **_common_facts(baseline),
                "precision": _compute_of(baseline.environment.get("precision", "")),
                **told,
            },
            "recipe": None,
            "amounts": {name: Amount(unit=one.unit, values=one.values) for name, one in kept.items()},
            "runs": max((len(one.values) for one in kept.values()), default=0),
            "power_scope": power_scope,
        }
    )


def _common(figures: Figures) -> dict[str, object]:
    nodes, _, each = figures.topology.partition("x")
    names = (
        "id", "model", "framework", "vendor", "machine", "topology", "preset", "mode", "data_digest",
        "measurement_version", "outcome",
    )  # fmt: skip
    return {name: getattr(figures, name) for name in names} | {"devices": int(nodes) * int(each)}


def _common_facts(figures: Figures) -> dict[str, str]:
    return {
        "case": f"{figures.model}/{figures.framework}",
        "preset": figures.preset,
        "mode": figures.mode,
        "vendor": figures.vendor,
        "machine": figures.machine,
        "topology": figures.topology,
        "data": figures.data_digest[:12],
        "measurement_version": figures.measurement_version,
        "case_digest": figures.case_digest[:12],
        "division": figures.division,
        "evidence": figures.evidence,
    }


def _facts(result: Result, target: str, batch: str) -> dict[str, str]:
    """What the issue of comparing chips asks to see first, then every parameter."""
    environment = result.environment
    told = {
        "target": target or "none in this mode",
        "global_batch": batch,
        "precision": _compute(result),
        "slots": _slots(environment.get("slots")),
        "compile": _shown(result.params.get("compile", "unknown")),
        "host": _text(environment.get("hosts") or environment.get("host")),
        "cpu": _text(environment.get("cpu")),
        "container": _text(environment.get("container")),
        "image": _text(environment.get("image") or "none"),
        "framework": _text(environment.get("framework")),
        "versions": _text(environment.get("versions")),
        "driver_version": _text(environment.get("driver_version")),
        "verified": str(result.verified).lower(),
    }
    params = {f"params.{name}": _shown(value) for name, value in result.params.items() if name != "compile"}
    return {**_common_facts(figures_of(result)), **told, **params}


def _amounts(result: Result, absent: int) -> Iterator[tuple[str, Amount]]:
    if result.mode == "converge":
        for name, unit in ENDS_AT_TARGET.items():
            values = [value for run in result.runs if _met(run) and (value := _to_target(run, name)) is not None]
            bounds = [_bound(run, name) for run in result.runs if not _met(run)] + [0.0] * absent
            # A metric that no run measured, as energy without a meter, is missing: not a bound of zero.
            if values or any(bounds) or (bounds and name == "time_to_train_s"):
                yield name, Amount(unit=unit, values=tuple(values), bounds=tuple(bounds))
    for name in RATES:
        metric = result.metrics.get(name)
        if metric is not None and metric.values:
            yield name, Amount(unit=metric.unit, values=metric.values)


def _met(run: RunResult) -> bool:
    """The run ended well and reached the target."""
    return run.outcome.status == "passed" and "time_to_train_s" in run.metrics


def _to_target(run: RunResult, name: str) -> float | None:
    # A run that meets the target ends with it, so what it trained is what it needed.
    found = run.metrics.get(name)
    return run.metrics.get("samples_trained") if found is None and name == "samples_to_target" else found


def _bound(run: RunResult, name: str) -> float:
    """What the figure had come to at the last evaluation, which missed; 0: a lost run, of which nothing is believed."""
    if run.outcome.status != "passed" or not run.curve:
        return 0.0
    last = max(run.curve, key=lambda point: point.step)
    if name == "energy_j":
        return run.metrics.get(name, 0.0)
    return max(last.t if name == "time_to_train_s" else float(last.samples), 0.0)


def _global_batch(result: Result) -> str:
    """As planned, so that a lost run has one too; where the parameters do not say, as the ranks counted it."""
    size, steps = result.params.get("train_batch_size"), result.params.get("gradient_accumulation_steps", 1)
    if isinstance(size, int) and isinstance(steps, int):
        return str(size * steps * data_ranks(result.params, result.topology.world_size))
    metric = result.metrics.get("global_batch")
    return f"{metric.value:.10g}" if metric is not None else "unknown"


def _compute(result: Result) -> str:
    """The dtype found from inside the ranks; where none was, the planned one."""
    found = result.environment.get("precision")
    dtype = found.get("compute") if isinstance(found, Mapping) else None
    return str(dtype) if dtype else f"{result.params.get('precision', 'unknown')} (planned)"


def _compute_of(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text or "unknown"
    return str(found.get("compute", "unknown")) if isinstance(found, dict) else text


def _slots(value: object) -> str:
    """Names and files of the replaced parts, without the folders that differ from host to host."""
    if not isinstance(value, Mapping) or not value:
        return "none replaced" if value == {} else "unknown"
    return ", ".join(f"{name} ({Path(str(file)).name})" for name, file in sorted(value.items()))


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, default=str)
    return "unknown" if value in (None, "") else str(value)


def _shown(value: Value | None) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
