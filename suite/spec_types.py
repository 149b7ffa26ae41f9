"""The types of single values in configuration files: what a topology, a parameter or a pattern may be."""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from suite.errors import UsageProblem
from suite.record import Value
from suite.topology import Topology


def _topology(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be text as in '1x8'")
    try:
        return Topology.parse(value)
    except UsageProblem:
        raise ValueError("must be <nodes>x<devices>, as in '1x8'") from None


def _value(value: object) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite")
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        if any(isinstance(item, dict | list | tuple) for item in value):
            raise ValueError("must be a flat list")
        return tuple(item for item in map(_value, value) if not isinstance(item, tuple))
    raise ValueError("must be a boolean, a number, text, or a flat list of these")


def _relative(path: str) -> str:
    bare = path.removeprefix("case:")
    if not bare or "\\" in bare or PurePosixPath(bare).is_absolute() or ".." in PurePosixPath(bare).parts:
        raise ValueError("must be a path below the data folder, or `case:NAME`")
    return path


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


def _preset(name: str) -> str:
    if name in ("throughput", "converge") or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError("a preset's name holds letters, digits, `_`, `.`, `-`, and is not the name of a mode")
    return name


_SCALAR_SCHEMA = {"type": ["boolean", "number", "string"]}
TopologyText = Annotated[
    Topology, BeforeValidator(_topology), WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]*x[1-9][0-9]*$"})
]
Param = Annotated[
    Value,
    PlainValidator(_value),
    WithJsonSchema({"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA}]}),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Preset = Annotated[str, AfterValidator(_preset)]
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
Pattern = Annotated[Text, AfterValidator(_pattern)]
DataPath = Annotated[str, AfterValidator(_relative)]
