"""What the first page shows: a grid of case x topology, every plan in one table, and what did not pass, worst first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reports.html_scaling import family
from reports.html_text import ABSENT, OPERATORS, amount, duration, share
from suite.result import Result

SEVERITY = ("failed", "error", "inconclusive", "not_started", "passed")
"""Statuses, what needs a person first."""

COLUMNS = ("Quality", "Time to train", "Throughput", "Speedup", "MFU")

Address = Callable[[str], str | None]
"""Plan id -> where its page is; None: it has none here."""


class Figure(NamedTuple):
    """A number of one plan: as shown, as sorted by, and what was wanted of it."""

    text: str
    value: float | None
    wanted: str = ""
    missed: bool = False


class Row(NamedTuple):
    """One plan in the table and in the grid."""

    id: str
    href: str | None
    topology: str
    devices: int
    status: str
    word: str
    """`failed: quality`."""
    category: str
    reason: str
    labels: tuple[str, ...]
    """`open`, `log`, `unverified`, `2 attempts`: what qualifies the outcome."""
    figures: Mapping[str, Figure]
    """By COLUMNS."""


class GridRow(NamedTuple):
    """The plans that differ in their topology alone."""

    case: str
    about: str
    cells: tuple[tuple[Row, ...], ...]
    """One a topology of the grid; empty: no such plan."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page's content."""

    counts: tuple[tuple[str, int], ...]
    topologies: tuple[str, ...]
    grid: tuple[GridRow, ...]
    rows: tuple[Row, ...]
    troubled: tuple[Row, ...]
    """Those that did not pass, by SEVERITY."""
    columns: tuple[str, ...] = COLUMNS


def overview(results: Sequence[Result], address: Address) -> Overview:
    """The overview of `results`, in their order; `address` says where each plan's page is."""
    rows = {result.id: row_of(result, address) for result in results}
    topologies = sorted({result.topology for result in results})
    families: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for result in results:
        cells = families.setdefault(family(result), {})
        cells.setdefault(str(result.topology), []).append(rows[result.id])
    grid = tuple(
        GridRow(
            case="/".join(key[:2]),
            about=" · ".join(part for part in (f"{key[2]} {key[3]}", key[4], key[5]) if part),
            cells=tuple(tuple(cells.get(str(topology), ())) for topology in topologies),
        )
        for key, cells in families.items()
    )
    counted = [(status, sum(row.status == status for row in rows.values())) for status in SEVERITY]
    troubled = sorted(
        (row for row in rows.values() if row.status != "passed"), key=lambda row: SEVERITY.index(row.status)
    )
    return Overview(
        counts=tuple((status, count) for status, count in counted if count),
        topologies=tuple(map(str, topologies)),
        grid=grid,
        rows=tuple(rows.values()),
        troubled=tuple(troubled),
    )


def row_of(result: Result, address: Address) -> Row:
    """One plan as a row."""
    outcome = result.outcome
    return Row(
        id=result.id,
        href=address(result.id),
        topology=str(result.topology),
        devices=result.topology.world_size,
        status=outcome.status,
        word=f"{outcome.status}: {outcome.category}" if outcome.category else outcome.status,
        category=outcome.category,
        reason=outcome.reason,
        labels=labels(result),
        figures=key_figures(result),
    )


def labels(result: Result) -> tuple[str, ...]:
    """What qualifies an outcome, in a word each."""
    attempts = sum(run.attempts for run in result.runs)
    found = {
        "open": result.division == "open",
        f"evidence: {result.evidence}": result.evidence != "driver",
        "unverified vendor": not result.verified,
        f"{attempts} attempts": attempts > len(result.runs),
        f"{len(result.seeds)} runs": len(result.seeds) > 1,
    }
    return tuple(label for label, holds in found.items() if holds)


def key_figures(result: Result) -> dict[str, Figure]:
    """The five numbers of a plan, by COLUMNS."""
    return {
        "Quality": _figure(result, "quality", "", lambda value, unit: amount(value, unit)),
        "Time to train": _figure(result, "time_to_train", "time_to_train_s", lambda value, unit: duration(value)),
        "Throughput": _figure(result, "throughput", "throughput_train", lambda value, unit: amount(value, unit)),
        "Speedup": _figure(result, "speedup", "speedup", lambda value, unit: f"{value:.3g}×"),
        "MFU": _figure(result, "mfu", "mfu", lambda value, unit: share(value)),
    }


def _figure(result: Result, check_name: str, metric: str, show: Callable[[float, str], str]) -> Figure:
    """The number of the check `check_name`, else of `metric`, against its threshold."""
    check = next((check for check in result.checks if check.name == check_name), None)
    measured = result.metrics.get(metric)
    value: float | str | None = measured.value if measured is not None else None
    unit = measured.unit if measured is not None else ""
    if check is not None and check.value is not None:
        value, unit = check.value, check.unit
    if value is None:
        text, number = ABSENT, None
    elif isinstance(value, str):
        text, number = value, None
    else:
        text, number = show(value, unit), value
    if check is None or check.threshold is None:
        return Figure(text, number)
    wanted = f"{OPERATORS.get(check.op, check.op)} {show(check.threshold, '')}"
    return Figure(text, number, wanted, check.status == "fail")
