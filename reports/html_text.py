"""How text and numbers get onto a page: nothing that a log or a journal holds can become markup, script or a link."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.escape import for_terminal
from suite.failure_text import number

TEMPLATES = Path(__file__).resolve().parent / "templates"

ABSENT = "–"
"""Stands for a number that is missing; never zero."""

SIGNS = {
    "passed": "✓", "failed": "✗", "error": "!", "inconclusive": "?", "not_started": "·",
    "pass": "✓", "fail": "✗",
}  # fmt: skip
"""A sign beside each word, so that nothing is told by colour alone."""

OPERATORS = {">=": "≥", "<=": "≤", "==": "="}

MAX_TEXT = 4000
"""Characters shown of one value; the run folder has the whole."""


def environment() -> Environment:
    """The templates, with everything that they print escaped: markup by autoescape, what steers a reader by `_safe`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(SIGNS=SIGNS, ABSENT=ABSENT)
    made.filters.update(amount=amount, duration=duration, linkable=linkable, share=share)
    return made


def _safe(value: object) -> object:
    """Text with controls and direction marks written out and an end; markup of our own templates as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = for_terminal(value, "utf-8")
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [… {len(text) - MAX_TEXT} more characters]"


def amount(value: float | str | None, unit: str = "") -> str:
    """A number with its unit, four digits; a missing one is ABSENT."""
    return ABSENT if value is None else number(value, unit)


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: `61.9 s`, `9 min 48 s`, `3 h 05 min`, `2 d 04 h`."""
    if seconds is None:
        return ABSENT
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24:02d} h"


def share(fraction: float | None) -> str:
    """A fraction in percent, `34.7 %`."""
    return ABSENT if fraction is None else f"{100 * fraction:.1f} %"


def linkable(text: str) -> bool:
    """`text` is an address that a page may link to; a scheme that a browser would run is not."""
    return re.match(r"https?://[^\s]+\Z", text) is not None


def page_name(id: str) -> str:
    """The file name, without its ending, for plan `id`: the id itself, or a digest of one that is no plain name."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,150}", id):
        return id
    return "plan-" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def flat(facts: Mapping[str, object], limit: int = 300) -> tuple[tuple[str, str], ...]:
    """Nested facts as (dotted name, text), in their order, at most `limit` of them."""
    rows = list(_leaves("", facts)) if facts else []
    if len(rows) > limit:
        rows[limit:] = [("…", f"{len(rows) - limit} more, in environment.json of the run folder")]
    return tuple(rows)


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}.{index}", item)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value)) or "none"
    elif isinstance(value, Mapping) or value is None or value == "":
        yield name, "none"
    else:
        yield name, str(value)
