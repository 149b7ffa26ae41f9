"""Python source as canonical JSON text without what cannot move a number; made in one walk, for every session waits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import lru_cache
from json import dumps
from json.encoder import encode_basestring_ascii as quoted

KEPT = 512
"""Texts that a process keeps, of some 20 kB each: whoever plans for many folders reads the same drivers each time."""

_NOT_CODE = ("ctx", "type_comment", "kind")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

_FIELDS: dict[type[ast.AST], tuple[tuple[str, str], ...]] = {}
"""Node class -> its fields in the order of canonical JSON, each with its key as JSON has it."""


@lru_cache(maxsize=KEPT)
def syntax_text(source: bytes) -> str:
    """The tree as JSON: `["Name",{"id":"x"}]`, no blanks, keys sorted. Raises SyntaxError, ValueError, RecursionError.

    Comments, docstrings and places are left out, and so are absent fields: a newer Python's additions change nothing.
    """
    parts: list[str] = []
    _write(ast.parse(source), parts.append)
    return "".join(parts)


def _write(node: ast.AST, put: Callable[[str], None]) -> None:
    kind = type(node)
    if kind is ast.Constant:
        put(f'["Constant",{quoted(type(node.value).__name__)},{quoted(repr(node.value))}]')  # type: ignore[attr-defined]
        return
    told: list[ast.stmt] | None = None
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        told = node.body[1:]
    put(f'["{kind.__name__}",{{')
    comma = ""
    for name, key in _FIELDS.get(kind) or _fields(kind):
        value = told if told is not None and name == "body" else getattr(node, name, None)
        if value is None or (value == [] and value is not told):
            continue
        put(comma + key)
        comma = ","
        if isinstance(value, ast.AST):
            _write(value, put)
        elif isinstance(value, list):
            _write_list(value, put)
        else:
            put(_leaf(value))
    put("}]")


def _write_list(items: Sequence[object], put: Callable[[str], None]) -> None:
    before = "["
    for item in items:
        put(before)
        before = ","
        if isinstance(item, ast.AST):
            _write(item, put)
        else:
            put(_leaf(item))
    put("]" if items else "[]")


def _fields(kind: type[ast.AST]) -> tuple[tuple[str, str], ...]:
    names = sorted(name for name in kind._fields if name not in _NOT_CODE)
    return _FIELDS.setdefault(kind, tuple((name, f'"{name}":') for name in names))


def _leaf(value: object) -> str:
    """A name, a number or nothing; what JSON does not have, as Python writes it."""
    return quoted(value) if isinstance(value, str) else dumps(value if isinstance(value, int | None) else repr(value))
