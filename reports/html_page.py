"""What the page of one plan shows, put into words and rows; the templates only lay it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reports import plots
from reports.html_overview import Figure, key_figures, labels
from reports.html_rerun import rerun_command
from reports.html_scaling import scaling
from reports.html_series import RunSeries, read_series, run_folder
from reports.html_text import ABSENT, OPERATORS, amount, flat, page_name, share
from reports.json_report import SessionReport
from reports.plots import Plot
from suite.events import is_plain_file
from suite.measurement import LEDGER_PHASES
from suite.metrics import METRICS
from suite.result import CheckResult, Result, RunResult

MAX_RUNS = 8
"""Runs that are drawn; their numbers are all in the tables."""
MAX_COMMAND_BYTES = 64 << 10


class CheckRow(NamedTuple):
    """One check."""

    name: str
    status: str
    value: str
    wanted: str
    required: bool
    reason: str
    source: str
    baseline: str


class MetricRow(NamedTuple):
    """One metric over all runs."""

    name: str
    median: float
    value: str
    values: str
    meaning: str


class RunRow(NamedTuple):
    """One run of the plan, or what is left of it."""

    n: int
    seed: int
    folder: str
    word: str
    status: str
    attempts: int
    numbers: tuple[str, ...]
    """By RUN_COLUMNS."""


RUN_COLUMNS = {
    "Time to train": "time_to_train_s",
    "Throughput": "throughput_train",
    "Median step": "step_time_median_s",
    "Peak memory": "memory_peak_gib",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """The content of one plan's page."""

    result: Result
    anchor: str
    """Unique among the plans of a session, and a file's name."""
    word: str
    labels: tuple[str, ...]
    figures: Mapping[str, Figure]
    plots: tuple[Plot, ...]
    remarks: tuple[str, ...]
    """What could not be drawn, and why."""
    checks: tuple[CheckRow, ...]
    ledger: tuple[tuple[str, str, str], ...]
    curve: tuple[tuple[str, ...], ...]
    runs: tuple[RunRow, ...]
    metrics: tuple[MetricRow, ...]
    params: tuple[tuple[str, str, str], ...]
    identity: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    rerun: str
    commands: tuple[tuple[str, str], ...]
    """(run folder, its command lines) as they were started."""
    run_columns: tuple[str, ...] = tuple(RUN_COLUMNS)


def plan_page(report: SessionReport, result: Result, session: Path, *, draw: bool) -> PlanPage:
    """The page of `result`; without `draw`, without plots. Reads the run folders, never raises for what is in them."""
    outcome = result.outcome
    folders = {run.n: run_folder(session, result.id, run.folder) for run in result.runs}
    drawn, remarks = _plots(report, result, folders) if draw else ((), ())
    return PlanPage(
        result=result,
        anchor=page_name(result.id),
        word=f"{outcome.status}: {outcome.category}" if outcome.category else outcome.status,
        labels=labels(result),
        figures=key_figures(result),
        plots=drawn,
        remarks=remarks,
        checks=tuple(_check(check) for check in result.checks),
        ledger=_ledger(result.ledger),
        curve=tuple(
            (f"{point.step:,}", f"{point.samples:,}", f"{point.t:.2f} s", amount(point.value)) for point in result.curve
        ),
        runs=tuple(_run(run, result) for run in result.runs),
        metrics=tuple(_metrics(result)),
        params=tuple(
            (key, '""' if value == "" else str(value), result.origins.get(key, ""))
            for key, value in sorted(result.params.items())
        ),
        identity=_identity(result),
        environment=flat(result.environment),
        rerun=rerun_command(result, report.session.command),
        commands=tuple(_commands(result, folders)),
    )


def _plots(
    report: SessionReport, result: Result, folders: Mapping[int, Path | None]
) -> tuple[tuple[Plot, ...], tuple[str, ...]]:
    """(every plot that the plan has data for, remarks on what could not be read)."""
    runs = result.runs[:MAX_RUNS]
    series = [read_series(folder, run.n) for run in runs if (folder := folders[run.n]) is not None]
    typical = _typical(result, series)
    quality = next((check for check in result.checks if check.name == "quality"), None)
    reached = result.metrics.get("time_to_train_s")
    target, op = (quality.threshold, OPERATORS.get(quality.op, quality.op)) if quality else (None, "")
    makers: tuple[Callable[[], Plot | None], ...] = (
        lambda: plots.quality_plot({run.n: run.curve for run in runs}, target, op, reached.value if reached else None),
        lambda: plots.loss_plot(series),
        lambda: plots.step_plot(typical) if typical else None,
        lambda: plots.scaling_plot(scaling(result, report.results), str(result.topology)),
        lambda: plots.ledger_plot({run.n: run.ledger for run in runs}),
        lambda: plots.device_plot(typical) if typical else None,
    )
    made, remarks = _made(makers)
    remarks += [f"run {run.n}: {run.problem}" for run in series if run.problem]
    if lost := [run.folder for run in runs if folders[run.n] is None]:
        remarks.append(f"no run folder {', '.join(lost)} lies in the session: what needs its events is not drawn")
    if len(result.runs) > MAX_RUNS:
        remarks.append(f"{MAX_RUNS} of {len(result.runs)} runs are drawn")
    return tuple(made), tuple(remarks)


def _made(makers: Sequence[Callable[[], Plot | None]]) -> tuple[list[Plot], list[str]]:
    """(the plots that there are, remarks). Numbers that no axis can hold cost their plot, not the page."""
    made: list[Plot] = []
    remarks: list[str] = []
    for make in makers:
        try:
            plot = make()
        except (ArithmeticError, ValueError, MemoryError) as error:
            remarks.append(f"a plot could not be drawn: {error or type(error).__name__}")
            continue
        if plot is not None:
            made.append(plot)
    return made, remarks


def _typical(result: Result, series: Sequence[RunSeries]) -> RunSeries | None:
    """The series of the median run, whose ledger is the plan's; else the first."""
    n = next((run.n for run in result.runs if run.ledger == result.ledger), None)
    return next((one for one in series if one.n == n), series[0] if series else None)


def _check(check: CheckResult) -> CheckRow:
    wanted = ABSENT
    if check.threshold is not None:
        wanted = f"{OPERATORS.get(check.op, check.op)} {amount(check.threshold, check.unit)}"
    return CheckRow(
        name=check.name,
        status=check.status,
        value=amount(check.value, check.unit),
        wanted=wanted,
        required=check.required,
        reason=check.reason,
        source=check.source,
        baseline=_against(check.baseline or {}),
    )


def _against(baseline: Mapping[str, object]) -> str:
    """What a check was compared with: `ID: 40 image/s, folder base`; empty where it was not compared."""
    facts = dict(baseline)
    id, value, unit = facts.pop("id", ""), facts.pop("value", None), facts.pop("unit", "")
    number = amount(value, str(unit)) if isinstance(value, int | float) else ""
    head = ": ".join(part for part in (str(id), number) if part)
    rest = (f"{key} {fact}" for key, fact in facts.items() if fact not in (None, ""))
    return ", ".join(part for part in (head, *rest) if part)


def _ledger(ledger: Mapping[str, float]) -> tuple[tuple[str, str, str], ...]:
    """(phase, seconds, share of the wall time), in the order of the phases."""
    wall = ledger.get("wall_s", 0.0)
    names = [name for name in (*LEDGER_PHASES, "unaccounted_s", "wall_s") if name in ledger]
    told = {"unaccounted_s": "unaccounted", "wall_s": "wall"}
    return tuple(
        (
            told.get(name, name.replace("_", " ")),
            f"{ledger[name]:.2f} s",
            share(ledger[name] / wall) if wall > 0 else ABSENT,
        )
        for name in names
    )


def _run(run: RunResult, result: Result) -> RunRow:
    outcome = run.outcome
    units = {name: metric.unit for name, metric in result.metrics.items()}
    numbers = tuple(amount(run.metrics.get(name), units.get(name, "")) for name in RUN_COLUMNS.values())
    word = f"{outcome.status}: {outcome.category}: {outcome.reason}" if outcome.category else outcome.status
    return RunRow(run.n, run.seed, run.folder, word, outcome.status, run.attempts, numbers)


def _metrics(result: Result) -> Iterator[MetricRow]:
    for name, metric in sorted(result.metrics.items()):
        known = METRICS.get(name)
        values = ", ".join(f"{value:.4g}" for value in metric.values) if len(metric.values) > 1 else ""
        yield MetricRow(
            name, metric.value, amount(metric.value, metric.unit), values, known.description if known else ""
        )


def _identity(result: Result) -> tuple[tuple[str, str], ...]:
    base = result.base
    rows = {
        "seeds": ", ".join(map(str, result.seeds)),
        "division": f"{result.division}: {'; '.join(result.division_reasons)}".rstrip(": "),
        "evidence": result.evidence,
        "measurement version": result.measurement_version,
        "case digest": result.case_digest,
        "plan digest": result.plan_digest,
        "data digest": result.data_digest,
        "comparability key": result.comparability_key or "none: it was never judged",
    }
    if base is not None:
        rows["base"] = f"{base.id}: {base.metric} {amount(base.value, base.unit)}; {base.folder}; {base.note}".rstrip(
            "; "
        )
    return tuple(rows.items())


def _commands(result: Result, folders: Mapping[int, Path | None]) -> Iterator[tuple[str, str]]:
    """What each run was started with, from its command.txt."""
    for run in result.runs:
        folder = folders[run.n]
        if folder is None or not is_plain_file(folder / "command.txt"):
            continue
        with (folder / "command.txt").open("rb") as file:
            yield run.folder, file.read(MAX_COMMAND_BYTES).decode("utf-8", "replace").rstrip("\n")
