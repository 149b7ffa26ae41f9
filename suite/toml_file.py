"""TOML files read into typed tables; what is wrong with one is told in a sentence with file and key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from suite.errors import UsageProblem, did_you_mean

TableT = TypeVar("TableT", bound=BaseModel)

_SHOWN_VALUE = 60
_DEEPEST = 32
"""Of tables and lists within each other; the deepest file of ours has 7."""


def shown(path: Path, root: Path) -> str:
    """`path` relative to `root` where it lies inside, with forward slashes; else as it is."""
    # As text: of ten thousand plans, each with its files, pathlib's own way takes seconds.
    text, start = path.as_posix(), root.as_posix().rstrip("/")
    if text == (start or "/"):
        return "."
    return text[len(start) + 1 :] if text.startswith(f"{start}/") else text


def read_toml(path: Path, label: str) -> dict[str, object]:
    """The parsed file. Raises UsageProblem, naming the line, for what is not UTF-8 or not TOML."""
    try:
        if not path.is_file() and not path.is_dir() and path.exists():  # whoever opens a pipe waits for ever
            raise UsageProblem(f"{label}: cannot be read: not a regular file")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{label}: cannot be read: {error.strerror or error}") from None
    try:
        found = dict(tomllib.loads(raw.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageProblem(
            f"{label}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+)", str(error))
        line = int(place[1]) if place else raw.count(b"\n") + 1
        reason = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise UsageProblem(f"{label}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise UsageProblem(f"{label}: not valid TOML: {str(error).partition(';')[0]}") from None
    except RecursionError:
        raise UsageProblem(f"{label}: nested too deeply; write it flat") from None
    if _is_deep(found):  # dotted keys nest without end, and nothing behind here counts
        raise UsageProblem(f"{label}: nested too deeply; write it flat")
    return found


def _is_deep(table: Mapping[str, object]) -> bool:
    """Whether tables and lists lie in each other more than _DEEPEST times."""
    level: list[Mapping[str, object] | list[object]] = [table]
    for _ in range(_DEEPEST):
        inner = [value for outer in level for value in (outer if isinstance(outer, list) else outer.values())]
        level = [value for value in inner if isinstance(value, dict | list)]
    return bool(level)


def read_table(path: Path, model: type[TableT], label: str) -> TableT:
    """`path` as a `model`. Raises UsageProblem naming file, key, value and what is allowed."""
    return parse_table(read_toml(path, label), model, label)


def parse_table(data: Mapping[str, object], model: type[TableT], label: str) -> TableT:
    """`data` as a `model`, strictly: no text becomes a number, no number a boolean."""

    def reject(value: object) -> str:
        raise UsageProblem(f"{label}: {value} is a date or time, which no key takes; quote it to make it text")

    text = json.dumps(data, default=reject)  # JSON, because pydantic's strict mode takes its arrays for tuples
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UsageProblem(f"{label}: {_sentence(model, error)}") from None


def _sentence(model: type[BaseModel], error: ValidationError) -> str:
    """The most telling of the problems: a misspelt key before the missing one that it causes."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    key, holder = _locate(model, problem["loc"])
    last = str(problem["loc"][-1]) if problem["loc"] else ""
    unknown_table = isinstance(problem["input"], dict) and holder is not None and last not in holder.model_fields
    if problem["type"] == "extra_forbidden" or unknown_table:
        kind = "table" if unknown_table else "key"
        return f"unknown {kind} {key!r}{did_you_mean(last, holder.model_fields if holder else ())}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if not key or isinstance(problem["input"], dict):
        return f"{key}: {message}" if key else message
    value = repr(problem["input"])
    if len(value) > _SHOWN_VALUE:
        value = value[:_SHOWN_VALUE] + "…"
    return f"{key} = {value}: {message[:1].lower()}{message[1:]}"


def _locate(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, type[BaseModel] | None]:
    """The key as its author wrote it, without pydantic's marks, and the table that holds it."""
    key = ""
    holder: type[BaseModel] | None = None
    here: object = model
    for part in loc:
        table = _table(here)
        if table is not None:
            holder = table
            field = table.model_fields.get(str(part))
            here = field.annotation if field else object
        elif isinstance(part, int):
            key += f" #{part + 1}"
            here, holder = (get_args(_bare(here))[0] if get_args(_bare(here)) else object), None
            continue
        elif isinstance(_origin(here), type) and issubclass(_origin(here), Mapping) and part != "[key]":
            here, holder = get_args(_bare(here))[1], None
        else:
            break
        key += f".{part}" if key else str(part)
    return key, holder


def _bare(annotation: object) -> object:
    """Without Annotated and Optional."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            if _table(member) is not None or get_origin(member) not in (None, Literal):
                return _bare(member)
    return annotation


def _origin(annotation: object) -> type:
    origin = get_origin(_bare(annotation))
    return origin if isinstance(origin, type) else type(None)


def _table(annotation: object) -> type[BaseModel] | None:
    bare = _bare(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, BaseModel) else None
