"""A report as blocks, written once for each format: a heading, sentences, or a table, of texts nobody has checked."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reports import markdown
from reports.escape import one_line, visible

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
{body}
</html>"""


class Heading(NamedTuple):
    """Of a section, or (level 1) of the whole."""

    text: str
    level: int = 2


class Sentences(NamedTuple):
    """One a line, or a list."""

    lines: tuple[str, ...]


class Table(NamedTuple):
    """Texts in columns."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Sentences | Table


def as_text(blocks: Sequence[Block]) -> str:
    """For a terminal."""
    return "\n".join(line for block in blocks if _holds(block) for line in _text(block))


def as_markdown(blocks: Sequence[Block]) -> str:
    """For a comment on a code host."""
    return markdown.within(line for block in blocks if _holds(block) for line in _markdown(block))


def as_html(blocks: Sequence[Block]) -> str:
    """A page of its own that loads nothing and runs nothing."""
    title = next((_clean(block.text) for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks if _holds(block))
    return PAGE.format(title=html.escape(title), body=body)


def _holds(block: Block) -> bool:
    return not (isinstance(block, Sentences) and not block.lines)


def _text(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        text = _clean(block.text)
        yield from (text, ("=" if block.level == 1 else "-") * len(text))
    elif isinstance(block, Sentences):
        yield from map(_clean, block.lines)
    else:
        yield _tabulated(block, "simple")
    yield ""


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * (block.level + 1)} {markdown.code(block.text)}"
    elif isinstance(block, Sentences):
        yield from (f"- {markdown.code(line, most=1000)}" for line in block.lines)
    else:
        yield from markdown.rows(block.headers, [[markdown.code(cell) for cell in row] for row in block.rows])
    yield ""


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(_clean(block.text))}</h{block.level}>"
    if isinstance(block, Sentences):
        return "<ul>\n" + "".join(f"<li>{html.escape(_clean(line))}</li>\n" for line in block.lines) + "</ul>"
    return _tabulated(block, "html")


def _tabulated(block: Table, form: str) -> str:
    from tabulate import tabulate  # imported here: `--help` does not need it

    rows = [[_clean(cell) for cell in row] for row in block.rows]
    return str(tabulate(rows, headers=block.headers, tablefmt=form, disable_numparse=True))


def _clean(text: str) -> str:
    return one_line(visible(text))
