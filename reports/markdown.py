"""Markdown for a code host, from text that nobody has checked: it cannot mention, link, embed or leave its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports.escape import one_line, visible

MOST_BYTES = 65_000
"""A comment may hold 65,536 characters; counting bytes leaves room whatever is counted."""

CELL = 300
"""Characters of one untrusted text in a table."""


def code(text: str, most: int = CELL) -> str:
    """`text` on one line in a code span: inside one, a host looks for no mentions, links, issues, tags or pictures."""
    # A bar would end the cell of a table, backslash or not; a lookalike cannot.
    shown = one_line(visible(text)).replace("|", "\N{LIGHT VERTICAL BAR}")
    if len(shown) > most:
        shown = shown[: most - 1] + "…"
    if not shown:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def rows(header: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines. The cells are Markdown already: untrusted text comes through `code`."""
    lines = [_line(header), _line(["---"] * len(header))]
    return lines + [_line(row) for row in cells]


def within(lines: Iterable[str], most: int = MOST_BYTES) -> str:
    """The lines as a text of at most `most` bytes; what is cut is counted, never dropped in silence."""
    lines = list(lines)
    kept: list[str] = []
    # Room for the last line is kept back.
    left = most - 120
    for position, line in enumerate(lines):
        left -= len(line.encode("utf-8", "replace")) + 1
        if left < 0:
            kept += ["", f"… and {len(lines) - position} more lines: the whole is in the session's report."]
            break
        kept.append(line)
    return "\n".join(kept) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
