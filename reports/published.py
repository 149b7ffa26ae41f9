"""A published table beside what a session measured: cards x columns -> rate and speedup, for whoever compares chips."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from reports import markdown
from reports.escape import one_line, visible
from suite.catalog import Catalog
from suite.published import Published, column_values, published, table_of
from suite.record import Record, Value
from suite.result import Result
from suite.spec import TableSpec
from suite.topology import Topology

HEADERS = ("machine", "topology", "cards", "figures")
FIXED = len(HEADERS)
ABSENT = "-"
"""No figure; never zero."""


class Figure(Record):
    """One figure of a table: published, or measured in the session."""

    origin: Literal["published", "measured"]
    vendor: str
    machine: str
    topology: str
    cards: int
    columns: Mapping[str, Value]
    rate: float | None
    speedup: float | None
    reason: str = ""
    """How a plan ended that has no figure, or none that counts."""
    plan: str = ""
    """Of a measured one."""
    source: str = ""
    """Of a published one."""


class PublishedTable(Record):
    """A case's table with everything that is known for it."""

    case: str
    name: str
    title: str
    metric: str
    unit: str
    columns: tuple[str, ...]
    figures: tuple[Figure, ...]


def published_tables(results: Sequence[Result], catalog: Catalog) -> tuple[PublishedTable, ...]:
    """The tables that `results` have a plan of, in the order of the cases. Raises UsageProblem."""
    found = []
    for case in catalog.cases:
        own = [result for result in results if (result.model, result.framework) == (case.model, case.framework)]
        for name in sorted(case.spec.table) if own else ():
            spec = table_of(case, name)
            measured = [
                result for result in own if result.mode == spec.mode and fnmatchcase(result.preset, spec.preset)
            ]
            if measured:
                stated = (_published(row, spec) for row in published(catalog, case, spec))
                # A card that is not here has its published row, and no other.
                tried = (result for result in measured if result.outcome.status != "not_started")
                figures = (*stated, *(_measured(result, spec) for result in tried))
                found.append(
                    PublishedTable(
                        case=str(case),
                        name=name,
                        title=spec.title,
                        metric=spec.metric,
                        unit=f"{case.spec.samples_unit}/s",
                        columns=spec.columns,
                        figures=tuple(sorted(figures, key=_order)),
                    )
                )
    return tuple(found)


def as_text(tables: Sequence[PublishedTable]) -> str:
    """For a terminal; every source is named once."""
    return "\n\n".join("\n".join([*_brief(table), *map(_clean, _sources(table))]) for table in tables)


def in_brief(tables: Sequence[PublishedTable]) -> list[str]:
    """The same without sources, for the end of a session."""
    return [line for table in tables for line in (*_brief(table), "")]


def as_markdown(tables: Sequence[PublishedTable]) -> str:
    """For a comment or a page of a code host."""
    lines: list[str] = []
    for table in tables:
        header, rows = grid(table)
        cells = [[markdown.code(cell) for cell in row] for row in rows]
        titles = [*header[:FIXED], *map(markdown.code, header[FIXED:])]
        lines += [f"### {markdown.code(table.title)}", "", *markdown.rows(titles, cells), ""]
        lines += [f"- {markdown.code(note, 1000)}" for note in (*notes(table), *_sources(table))]
    return markdown.within(lines)


def as_html(tables: Sequence[PublishedTable]) -> str:
    """A page without scripts or styles."""
    from tabulate import tabulate

    body = []
    for table in tables:
        header, rows = grid(table)
        told = "".join(f"<li>{html.escape(_clean(note))}</li>\n" for note in (*notes(table), *_sources(table)))
        cells = [[_clean(cell) for cell in row] for row in rows]
        # tabulate escapes what stands in cells.
        grown = tabulate(cells, headers=header, tablefmt="html", disable_numparse=True)
        body.append(f"<h1>{html.escape(_clean(table.title))}</h1>\n{grown}\n<ul>\n{told}</ul>\n")
    head = '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Published tables</title></head>\n'
    return f"{head}<body>\n{''.join(body)}</body>\n</html>"


def as_json(tables: Sequence[PublishedTable]) -> str:
    """Every figure with its source, for the next tool."""
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[PublishedTable, ...]).dump_json(tuple(tables), indent=1).decode()


FORMATS: Mapping[str, Callable[[Sequence[PublishedTable]], str]] = {
    "text": as_text,
    "md": as_markdown,
    "html": as_html,
    "json": as_json,
}


def grid(table: PublishedTable) -> tuple[list[str], list[list[str]]]:
    """(header, rows): a row for each machine, topology and origin; a column for each set of values."""
    columns = _columns(table)
    cells = {(*_place(figure), tuple(figure.columns.values())): _cell(figure) for figure in table.figures}
    cards = {figure.topology: str(figure.cards) for figure in table.figures}
    header = [*HEADERS, *(", ".join(map(str, values)) for values in columns)]
    rows = [
        [machine, topology, cards[topology], origin]
        + [cells.get((machine, topology, origin, values), ABSENT) for values in columns]
        for machine, topology, origin in dict.fromkeys(map(_place, table.figures))
    ]
    return header, rows


def notes(table: PublishedTable) -> Iterator[str]:
    """What the figures are, and why one is absent or does not count."""
    yield f"{table.unit} ({table.metric}), x: speedup; columns: {', '.join(table.columns)}"
    for figure in table.figures:
        if figure.reason:
            yield f"{figure.plan}: {figure.reason}"


def _sources(table: PublishedTable) -> list[str]:
    return list(dict.fromkeys(figure.source for figure in table.figures if figure.origin == "published"))


def _brief(table: PublishedTable) -> list[str]:
    from tabulate import tabulate  # imported here: `--help` does not need it

    header, rows = grid(table)
    cells = [[_clean(cell) for cell in row] for row in rows]
    grown = str(tabulate(cells, headers=[_clean(cell) for cell in header], tablefmt="simple", disable_numparse=True))
    return [_clean(table.title), "", *grown.splitlines(), "", *map(_clean, notes(table))]


def _place(figure: Figure) -> tuple[str, str, str]:
    """What has a row of its own."""
    return (figure.machine, figure.topology, figure.origin)


def _published(row: Published, spec: TableSpec) -> Figure:
    return Figure(
        origin="published",
        vendor=row.vendor,
        machine=row.machine,
        topology=str(row.topology),
        cards=row.topology.world_size,
        columns=dict(zip(spec.columns, row.columns)),
        rate=row.rate,
        speedup=row.speedup,
        source=row.source,
    )


def _measured(result: Result, spec: TableSpec) -> Figure:
    rate, speedup = result.metrics.get(spec.metric), result.metrics.get("speedup")
    outcome = result.outcome
    told = ": ".join(filter(None, (outcome.status, outcome.category, outcome.reason)))
    return Figure(
        origin="measured",
        vendor=result.vendor,
        machine=result.machine,
        topology=str(result.topology),
        cards=result.topology.world_size,
        columns=dict(zip(spec.columns, column_values(spec, result.params))),
        rate=None if rate is None else rate.value,
        speedup=None if speedup is None else speedup.value,
        reason="" if outcome.status == "passed" else told,
        plan=result.id,
    )


def _order(figure: Figure) -> tuple[object, ...]:
    topology = Topology.parse(figure.topology)
    return (figure.machine, figure.cards, topology.nnodes, figure.origin == "measured", figure.plan)


def _columns(table: PublishedTable) -> list[tuple[Value, ...]]:
    """Every set of values that some figure has, numbers as numbers."""
    found = dict.fromkeys(tuple(figure.columns.values()) for figure in table.figures)
    return sorted(found, key=lambda values: [_sortable(value) for value in values])


def _sortable(value: Value) -> tuple[int, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(str(value)), "") if number else (1, 0.0, str(value))


def _cell(figure: Figure) -> str:
    """`5055.56, x7.91`."""
    if figure.rate is None:
        return ABSENT
    digits = 7 if figure.origin == "published" else 5
    return f"{figure.rate:.{digits}g}" + (f", x{figure.speedup:.4g}" if figure.speedup is not None else "")


def _clean(text: str) -> str:
    return one_line(visible(text))
