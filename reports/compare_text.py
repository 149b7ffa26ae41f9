"""A comparison for a person or a tool: text for a terminal, Markdown, HTML without scripts, or JSON."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping

from reports import markdown
from reports.comparison import Comparison, Pair, Row
from reports.escape import one_line, visible

HEADERS = ("plan", "metric", "old", "new", "ratio", "95 %", "p", "effect", "tolerance", "detectable", "verdict")

LEGEND = (
    "ratio: new median over old, with its 95 % bootstrap interval; p: Mann-Whitney, adjusted for all gating rows"
    " (Holm); effect: chance that a new run is larger than an old one; detectable: the smallest change these runs can"
    " find."
)

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<h1>{title}</h1>
{body}
</html>"""


def as_text(comparison: Comparison) -> str:
    """A table for a terminal, and under it what differs beside the numbers."""
    lines = [_table(comparison, "simple"), ""]
    lines += [one_line(visible(line)) for line in _notes(comparison)]
    return "\n".join([*lines, "", LEGEND, "", summary(comparison)])


def as_markdown(comparison: Comparison) -> str:
    """The same for a comment on a code host."""
    lines = [
        f"**{summary(comparison)}**",
        "",
        f"old {markdown.code(comparison.old)}, new {markdown.code(comparison.new)}",
    ]
    lines += ["", *markdown_rows(comparison), ""]
    lines += [f"- {markdown.code(line)}" for line in _notes(comparison)]
    return markdown.within([*lines, "", LEGEND])


def markdown_rows(comparison: Comparison) -> list[str]:
    """The table alone."""
    cells = [
        [markdown.code(row.id), markdown.code(row.metric), *_cells(row), _verdict(row, markdown.code)]
        for _, row in _rows(comparison)
    ]
    return markdown.rows(HEADERS, cells)


def as_html(comparison: Comparison) -> str:
    """A page of its own that loads nothing and runs nothing."""
    title = html.escape(visible(f"{comparison.new} against {comparison.old}"))
    notes = "".join(f"<li>{html.escape(visible(line))}</li>\n" for line in _notes(comparison))
    body = f"<p>{html.escape(summary(comparison))}</p>\n{_table(comparison, 'html')}\n<ul>\n{notes}</ul>\n"
    return PAGE.format(title=title, body=body + f"<p>{html.escape(LEGEND)}</p>")


def as_json(comparison: Comparison) -> str:
    """Every number, for the next tool."""
    return comparison.model_dump_json(indent=1)


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "md": as_markdown,
    "html": as_html,
    "json": as_json,
}


def summary(comparison: Comparison) -> str:
    """`1 regression, 2 same, 1 inconclusive`."""
    counts = dict.fromkeys(("regression", "improvement", "same", "inconclusive"), 0)
    for row in comparison.gating:
        counts[row.verdict] += 1
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing that could gate"


def _table(comparison: Comparison, form: str) -> str:
    from tabulate import tabulate  # imported here: `--help` does not need it

    cells = [
        (one_line(visible(row.id)), one_line(visible(row.metric)), *_cells(row), _verdict(row, lambda text: text))
        for _, row in _rows(comparison)
    ]
    return str(tabulate(cells, headers=HEADERS, tablefmt=form, disable_numparse=True))


def _rows(comparison: Comparison) -> Iterator[tuple[Pair, Row]]:
    return ((pair, row) for pair in comparison.pairs for row in pair.rows)


def _cells(row: Row) -> tuple[str, ...]:
    """The numbers between metric and verdict."""
    interval = f"{row.low:.4f} to {row.high:.4f}" if row.low is not None and row.high is not None else "-"
    return (
        _value(row, old=True),
        _value(row, old=False),
        _number(row.ratio, ".4f"),
        interval,
        _number(row.p_adjusted if row.p_adjusted is not None else row.p, ".2g"),
        _number(row.effect, ".2f"),
        _percent(row.tolerance),
        _percent(row.detectable),
    )


def _value(row: Row, *, old: bool) -> str:
    sample = row.old if old else row.new
    if sample is None:
        return "-"
    spread = f" ±{100 * sample.variation:.2g} %" if sample.variation is not None else ""
    unit = f" {one_line(visible(row.unit))}" if row.unit else ""
    return f"{sample.median:.5g}{unit.replace('|', '/')}{spread} (n {len(sample.values)})"


def _verdict(row: Row, quoted: Callable[[str], str]) -> str:
    return f"{row.verdict}: {quoted(row.reason)}" if row.reason else row.verdict


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2g} %"


def _notes(comparison: Comparison) -> Iterator[str]:
    for pair in comparison.pairs:
        for note in pair.notes:
            yield f"{pair.id}: {note}"
    if comparison.across:
        yield f"compared across {' and '.join(comparison.across)}, as asked"
    for name, ids in (("old", comparison.only_old), ("new", comparison.only_new)):
        for id in ids:
            yield f"{id}: on the {name} side only"
