"""Writes the small TOML that the converters produce: scalars, lists of scalars, tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from suite.record import Scalar

TomlValue = Scalar | Sequence[Scalar]
"""A value of one line."""

ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def text(value: str) -> str:
    """A basic string: every control character escaped."""
    return '"' + "".join(ESCAPES.get(c) or (c if c.isprintable() else _escaped(c)) for c in value) + '"'


def _escaped(character: str) -> str:
    """`\\uXXXX`; a lone surrogate cannot stand in TOML and becomes the replacement character."""
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def key(name: str) -> str:
    """A bare key where TOML allows one, else a quoted one."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else text(name)


def value(item: TomlValue) -> str:
    """One value."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return text(item)
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        # repr may be `1e-05`, which TOML reads; `inf` and `nan` are its own words too.
        return repr(item) if math.isfinite(item) else str(item)
    return "[" + ", ".join(value(part) for part in item) + "]"


def entry(name: str, item: TomlValue) -> str:
    """`name = value`."""
    return f"{key(name)} = {value(item)}"


def table(name: str, entries: Mapping[str, TomlValue]) -> str:
    """`[name]` and its entries, with an empty line after it; nothing at all for no entries."""
    if not entries:
        return ""
    return "\n".join([f"[{key(name)}]", *(entry(k, v) for k, v in entries.items()), "", ""])


def comment(sentence: str) -> str:
    """The sentence as comment lines; what TOML forbids in a comment becomes `?`."""
    lines = sentence.splitlines() or [""]
    return "\n".join("# " + "".join(c if c.isprintable() else "?" for c in line) for line in lines)
