"""JSON schemas with the attribute docstrings of our records: read when one is exported, not whenever one is defined."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class Described(GenerateJsonSchema):
    """pydantic's generator, for `schema_generator=`; each property also says what the docstring below it says."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """One record's own schema."""
        made = super().model_schema(schema)
        for name, text in attribute_docs(schema["cls"]).items():
            if text and name in made.get("properties", {}):
                made["properties"][name].setdefault("description", text)
        return made


def attribute_docs(model: type) -> Mapping[str, str]:
    """Field -> the docstring that follows it, those of the model's bases included; empty: it has none."""
    bases = [base for base in reversed(model.__mro__) if base is not BaseModel and issubclass(base, BaseModel)]
    return {name: text for base in bases for name, text in _own_docs(base).items()}


@cache
def _own_docs(model: type[BaseModel]) -> Mapping[str, str]:
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(defined, ast.ClassDef)
    found = {}
    for field, after in pairwise([*defined.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            told = after.value if isinstance(after, ast.Expr) else None
            text = told.value if isinstance(told, ast.Constant) else None
            found[field.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    return found
