"""A comparison of two chips for a person or a tool: first what is the same and what differs, then the two views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from reports import blocks
from reports.blocks import Block, Heading, Sentences, Table
from reports.censored import Amount
from reports.versus_record import Duel, Line, Versus, View

HEADERS = ("metric", "A", "B", "B better by", "95 %", "remark")

LEGEND = (
    "Values are medians over the runs. B better by: above 1x B is ahead, below 1x A is, whichever way the metric"
    " points; the interval resamples whole runs. A run that missed the target is a bound, never a number."
)

MEANING: Mapping[View, str] = {
    "same recipe": "equal preset, data, target, global batch, precision and parameters that decide what is learnt",
    "best recipe": "the best measured of each side, whatever its batch, precision or parameters; equal data and target",
}


def blocks_of(report: Versus) -> Iterator[Block]:
    """The whole report."""
    yield Heading(f"{report.b} versus {report.a}", 1)
    yield Sentences((f"A: {report.a}", f"B: {report.b}"))
    yield Heading("What is the same, and what differs")
    for one in report.duels:
        yield Sentences((_title(one), *_facts(one)))
        yield from differences(one)
    for view in MEANING:
        yield from _view(report, view)
    if report.not_compared:
        yield Heading("Not compared")
        yield Sentences(report.not_compared)
    if report.prices:
        yield Heading("Prices")
        yield Sentences(report.prices)
    yield Sentences((LEGEND,))


def _view(report: Versus, view: View) -> Iterator[Block]:
    yield Heading(f"{view[:1].upper()}{view[1:]}")
    yield Sentences((MEANING[view],))
    shown = [one for one in report.duels if view in one.views]
    if not shown:
        yield Sentences(("no plan of A and B is one; what keeps them apart stands under «Not compared»",))
    for one in shown:
        if view == "best recipe" and "same recipe" in one.views:
            yield Sentences((f"{_title(one)}: the pair of the same recipe, see above",))
            continue
        yield Sentences((_title(one),))
        yield table(one.lines)


def differences(one: Duel) -> Iterator[Block]:
    """What differs, and what must be known before the numbers."""
    if one.differs:
        yield Table(("differs", "A", "B"), tuple((name, *pair) for name, pair in one.differs.items()))
    else:
        yield Sentences(("nothing that is known of both differs",))
    yield Sentences(one.notes)


def table(lines: Sequence[Line]) -> Table:
    """The figures, one metric a row."""
    return Table(
        HEADERS,
        tuple((line.metric, shown(line.a), shown(line.b), gain(line), interval(line), line.reason) for line in lines),
    )


def shown(amount: Amount | None) -> str:
    """`588 s (n 5)`; with runs that missed the target `> 1200 s (3 of 5 reached it)`."""
    if amount is None:
        return "-"
    low, high = amount.range
    unit = f" {amount.unit}" if amount.unit else ""
    reached, runs = len(amount.values), len(amount.values) + len(amount.bounds)
    count = f"{reached} of {runs} reached it" if amount.bounds else f"n {runs}"
    if high is None:
        text = f"> {low:.5g}{unit}" if low > 0 else "unknown"
    else:
        text = f"{low:.5g}{unit}" if low == high else f"{low:.5g} to {high:.5g}{unit}"
    return f"{text} ({count})"


def gain(line: Line) -> str:
    """`1.25x`, or its bounds."""
    if line.gain is not None:
        return f"{line.gain:.4g}x"
    least, most = line.at_least, line.at_most
    if least is not None and most is not None:
        return f"{least:.4g}x to {most:.4g}x"
    if least is not None:
        return f"at least {least:.4g}x"
    return f"at most {most:.4g}x" if most is not None else "-"


def interval(line: Line) -> str:
    """`1.21x to 1.29x`."""
    return f"{line.low:.4g}x to {line.high:.4g}x" if line.low is not None and line.high is not None else "-"


def _title(one: Duel) -> str:
    return f"{one.a} (A) and {one.b} (B)" if one.a != one.b else f"{one.a} (A and B)"


def _facts(one: Duel) -> Iterator[str]:
    params = [name for name in one.same if name.startswith("params.")]
    rest = [name for name in one.same if name not in params]
    more = f", and {len(params)} parameters" if params else ""
    yield f"the same: {', '.join(rest)}{more}"
    if unknown := [name for name in one.unknown if not name.startswith("params.")]:
        yield f"known of one side at most: {', '.join(unknown)}"
    if params := [name for name in one.unknown if name.startswith("params.")]:
        yield f"parameters that only one side has: {', '.join(name.removeprefix('params.') for name in params)}"


FORMATS: Mapping[str, Callable[[Versus], str]] = {
    "text": lambda report: blocks.as_text(list(blocks_of(report))),
    "md": lambda report: blocks.as_markdown(list(blocks_of(report))),
    "html": lambda report: blocks.as_html(list(blocks_of(report))),
    "json": lambda report: report.model_dump_json(indent=1),
}
