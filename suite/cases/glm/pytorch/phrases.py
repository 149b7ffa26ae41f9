"""The phrases of the preset mini, from the Unicode CLDR as the package babel carries it."""

from __future__ import annotations

import datetime
import lzma
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from suite.drivers.events import RunProblem

VERSION = "2.19"
"""Of babel: another one has another CLDR, and would give another file."""
DRAWN = 12000
LONGEST = 40
"""Letters in either language."""
UNITS = [
    "duration-day",
    "duration-hour",
    "duration-month",
    "duration-week",
    "duration-year",
    "duration-minute",
    "duration-second",
    "length-kilometer",
    "length-meter",
    "mass-kilogram",
    "mass-gram",
    "volume-liter",
    "digital-megabyte",
    "speed-kilometer-per-hour",
    "temperature-celsius",
    "length-mile",
]

Row = tuple[str, str, str]
"""English, German, kind."""


def write(target: Path) -> int:
    """Pack the phrases into `target`. Returns how many there are. Deterministic for one version of babel."""
    rows = [row for row in sorted(_draw()) if max(len(row[0]), len(row[1])) <= LONGEST]
    random.Random(1).shuffle(rows)
    with lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as packed:
        packed.write("\n".join("\t".join(row) for row in rows).encode("utf-8"))
    return len(rows)


def _draw() -> set[Row]:
    """All names that both languages have, then random dates, units, spans of time, lists and locales up to DRAWN."""
    babel = _babel()
    english, german = babel.Locale("en"), babel.Locale("de")
    rows: set[Row] = set()
    common: dict[str, list[str]] = {}
    tables = {"lang": "languages", "terr": "territories", "cur": "currencies", "script": "scripts"}
    for kind, table in tables.items():
        ours, theirs = getattr(english, table), getattr(german, table)
        common[kind] = [code for code in ours if code in theirs and _plain(kind, code)]
        rows.update((ours[code], theirs[code], kind) for code in common[kind])
    source = random.Random(0)
    while len(rows) < DRAWN:
        choice = source.random()
        kind = next(kind for kind, bound in BOUNDS.items() if choice < bound)
        rows.add((*MAKERS[kind](source, english, german, common), kind))
    return rows


def _plain(kind: str, code: str) -> bool:
    """Languages without a variant, territories that are countries."""
    return not (kind == "lang" and "_" in code) and not (kind == "terr" and len(code) != 2)


def _date(source, english, german, common) -> tuple[str, str]:
    from babel import dates

    day = datetime.date(1990, 1, 1) + datetime.timedelta(days=source.randrange(16000))
    style = source.choice(["full", "long"])
    return dates.format_date(day, style, english), dates.format_date(day, style, german)


def _unit(source, english, german, common) -> tuple[str, str]:
    from babel import units

    amount = source.choice([1, 2, 3, 5, source.randrange(4, 100)])
    unit = source.choice(UNITS)
    return units.format_unit(amount, unit, locale=english), units.format_unit(amount, unit, locale=german)


def _span(source, english, german, common) -> tuple[str, str]:
    from babel import dates

    measure = source.choice(["days", "hours", "weeks", "minutes"])
    span = datetime.timedelta(**{measure: source.choice([-1, 1]) * source.randrange(1, 50)})
    how = {"add_direction": True, "threshold": 3}
    return dates.format_timedelta(span, locale=english, **how), dates.format_timedelta(span, locale=german, **how)


def _list(source, english, german, common) -> tuple[str, str]:
    from babel import lists

    both = source.sample(common["terr"], 2)
    sides = ((side, [side.territories[code] for code in both]) for side in (english, german))
    return tuple(lists.format_list(names, "standard", side) for side, names in sides)


def _locale(source, english, german, common) -> tuple[str, str]:
    language, territory = source.choice(common["lang"]), source.choice(common["terr"])
    return tuple(f"{side.languages[language]} ({side.territories[territory]})" for side in (english, german))


MAKERS: Mapping[str, Callable[..., tuple[str, str]]] = {
    "date": _date,
    "unit": _unit,
    "rel": _span,
    "list": _list,
    "locale": _locale,
}
BOUNDS = {"date": 0.3, "unit": 0.5, "rel": 0.65, "list": 0.85, "locale": 1.0}
"""Cumulative share of each kind."""


def _babel():
    try:
        import babel
    except ImportError as error:
        raise RunProblem(f"package babel is missing: pip install babel=={VERSION}") from error
    if babel.__version__.removesuffix(".0") != VERSION:
        raise RunProblem(f"babel {babel.__version__} has another CLDR than the phrases: pip install babel=={VERSION}")
    return babel
