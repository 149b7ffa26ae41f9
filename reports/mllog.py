"""A run as MLPerf's log lines: the same events, in that benchmark's words and order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from reports.atomic import replace_file
from reports.load import load
from suite.errors import UsageProblem
from suite.events import BadEvents, Event, read_events
from suite.harness_log import read_object
from suite.plan import Plan
from suite.run_folders import newest_attempts

TOKEN = ":::MLLOG "

BENCHMARKS = {"bert": "bert", "llama2_70b": "llama2_70b_lora", "llama3_8b": "llama31_8b"}
"""Models that MLPerf has under a name of its own; any other keeps ours, which no rule set of theirs knows."""

HYPERPARAMETERS: Mapping[str, Mapping[str, str]] = {
    "lamb": {
        "adam_eps": "opt_lamb_epsilon", "adam_beta1": "opt_lamb_beta_1", "adam_beta2": "opt_lamb_beta_2",
        "weight_decay": "opt_lamb_weight_decay_rate",
    },
    "adamw": {
        "adam_eps": "opt_adamw_epsilon", "adam_beta1": "opt_adamw_beta_1", "adam_beta2": "opt_adamw_beta_2",
        "weight_decay": "opt_adamw_weight_decay",
    },
    "sgd": {"weight_decay": "opt_weight_decay", "momentum": "opt_momentum"},
    "": {
        "gradient_accumulation_steps": "gradient_accumulation_steps", "lr": "opt_base_learning_rate",
        "schedule_steps": "opt_learning_rate_training_steps", "warmup_steps": "opt_learning_rate_warmup_steps",
        "clip_grad_norm": "opt_gradient_clip_norm", "sequence_length": "max_sequence_length",
        "optimizer": "opt_name",
    },
}  # fmt: skip
"""Parameter of a case -> key of the log, by optimizer; under "" those of any."""


class _Line(NamedTuple):
    """One entry, before it is written."""

    kind: str
    key: str
    value: object
    line: int
    """Of the event stream it comes from."""
    time_ms: int
    more: Mapping[str, object]


def mllog_lines(plan: Plan, run_dir: Path) -> str:
    """The log of the run in `run_dir`. Raises UsageProblem where its event stream cannot be read."""
    try:
        events = list(read_events(run_dir / "events" / "rank0.jsonl"))
    except BadEvents as bad:
        raise UsageProblem(f"{run_dir}: {bad}; only a run whose events are sound has a log") from None
    if not events or not any(event.name == "run_start" for event in events):
        raise UsageProblem(f"{run_dir}: training never began, so there is nothing to log")
    return "".join(_written(line) for line in _lines(plan, run_dir, events))


def write_mllog(plan_folder: Path, output: Path) -> list[Path]:
    """`<output>/<plan id>/result_<i>.txt` for each repeat of the plan in `plan_folder`. Raises UsageProblem."""
    plan = load(Plan, plan_folder / "plan.json")
    folder = output / plan.id
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for index, run_dir in enumerate(newest_attempts(plan_folder)):
        path = folder / f"result_{index}.txt"
        replace_file(path, mllog_lines(plan, run_dir).encode("utf-8"))
        written.append(path)
    return written


def _written(line: _Line) -> str:
    metadata = {"file": "events/rank0.jsonl", "lineno": line.line, **line.more}
    fields = {
        "namespace": "", "time_ms": line.time_ms, "event_type": line.kind, "key": line.key, "value": line.value,
        "metadata": metadata,
    }  # fmt: skip
    return f"{TOKEN}{json.dumps(fields, allow_nan=False)}\n"


class _Log:
    """Turns events into entries on one clock: the header ties rank 0's own to the wall's."""

    def __init__(self, header: Event) -> None:
        self._offset = header.number("t_wall") - header.t

    def entry(self, kind: str, key: str, value: object, event: Event, **more: object) -> _Line:
        return _Line(kind, key, value, event.line, round((event.t + self._offset) * 1000), more)

    def point(self, key: str, value: object, event: Event, **more: object) -> _Line:
        return self.entry("POINT_IN_TIME", key, value, event, **more)

    def start(self, key: str, event: Event, **more: object) -> _Line:
        return self.entry("INTERVAL_START", key, None, event, **more)

    def stop(self, key: str, event: Event, **more: object) -> _Line:
        return self.entry("INTERVAL_END", key, None, event, **more)


def _lines(plan: Plan, run_dir: Path, events: list[Event]) -> Iterator[_Line]:
    log, first = _Log(events[0]), events[0]
    start = next(event for event in events if event.name == "run_start")
    init = next((event for event in events if event.name == "init_stop"), start)
    cleared = read_object(run_dir / "environment.json").get("caches_cleared")
    yield log.point("cache_clear", cleared is True, first)
    yield log.start("init_start", first)
    yield from _facts(plan, run_dir, log, init, events)
    yield log.stop("init_stop", init)
    yield log.start("run_start", start)
    yield from _training(plan, log, start, events)


def _facts(plan: Plan, run_dir: Path, log: _Log, at: Event, events: list[Event]) -> Iterator[_Line]:
    """Who, what, with which parameters: all before init_stop."""
    yield log.point("submission_benchmark", BENCHMARKS.get(plan.model, plan.model), at)
    yield log.point("submission_division", plan.division, at)
    yield log.point("submission_platform", f"{plan.vendor} {plan.machine} {plan.topology}", at)
    yield log.point("seed", read_object(run_dir / "run.json").get("seed"), at)
    start, stop = (_last(events, name) for name in ("run_start", "run_stop"))
    batch = start.count("global_batch") if start is not None and start.has("global_batch") else None
    yield log.point("global_batch_size", batch, at)
    trained = stop.count("samples") if stop is not None and stop.has("samples") else None
    yield log.point("train_samples", trained, at, meaning="samples that this run trained on")
    yield log.point("eval_samples", plan.params.get("eval_samples"), at, meaning="null: the case does not state it")
    optimizer = str(plan.params.get("optimizer", ""))
    names = {**HYPERPARAMETERS[""], **HYPERPARAMETERS.get(optimizer, {})}
    for parameter, key in names.items():
        if parameter in plan.params:
            yield log.point(key, plan.params[parameter], at)
    if plan.model == "bert":
        # Its rule set wants the warm-up under both names.
        yield log.point("num_warmup_steps", plan.params.get("warmup_steps", 0), at)
        yield log.point("start_warmup_step", 0, at)


def _training(plan: Plan, log: _Log, start: Event, events: list[Event]) -> Iterator[_Line]:
    """A block of training, an evaluation, the next block …, and the end with its status."""
    samples, met = 0, False
    yield log.start("block_start", start, samples_count=0, first_epoch_num=0)
    pending: Event | None = None
    opened: Event | None = None
    for event in events:
        if event.name == "eval_start":
            opened = event
        elif event.name in ("eval_result", "eval_stop") and opened is not None:
            # The driver tells the end before the result, a log adapter the other way round: both belong together.
            if pending is None:
                pending = event
                continue
            result, end = (event, pending) if event.name == "eval_result" else (pending, event)
            before, samples = samples, result.count("samples")
            met |= result.data.get("met") is True
            yield log.stop("block_stop", opened, samples_count=samples, first_epoch_num=before)
            yield from _evaluation(plan, log, opened, end, result, samples)
            again = max(end, result, key=lambda one: one.t)
            yield log.start("block_start", again, samples_count=samples, first_epoch_num=samples)
            pending = opened = None
    last = _last(events, "run_stop")
    if last is None:
        return
    yield log.stop("block_stop", last, samples_count=samples, first_epoch_num=samples)
    good = last.text("status") == "success" and (met or plan.mode == "throughput")
    yield log.stop("run_stop", last, status="success" if good else "aborted", samples_count=samples)


def _evaluation(plan: Plan, log: _Log, opened: Event, end: Event, result: Event, samples: int) -> Iterator[_Line]:
    # Rule sets count progress as epochs or as samples; here both are samples, and the value says how good it is.
    progress = {"epoch_num": samples, "samples_count": samples}
    value = result.table("metrics").get(plan.quality.metric)
    last = max(end, result, key=lambda one: one.t)
    yield log.start("eval_start", opened, **progress)
    yield log.point("eval_accuracy", value, last, metric=plan.quality.metric, **progress)
    yield log.stop("eval_stop", last, **progress)


def _last(events: list[Event], name: str) -> Event | None:
    return next((event for event in reversed(events) if event.name == name), None)
