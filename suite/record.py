"""The base of every record that passes between rooms: frozen, keyword-only, no unknown keys, plain JSON."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from suite.schema_version import check_file

Scalar = bool | int | float | str
"""A value that TOML, JSON and a command line can all carry."""

Value = Scalar | tuple[Scalar, ...]
"""A planned parameter."""


class Record(BaseModel):
    """A frozen record. `__init__` may reject, never repair."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def write(self, path: Path) -> None:
        """Write as JSON, atomically: a reader sees the old file or the new one, never half of it."""
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in `path`. Raises pydantic's ValidationError, NewerSchema (a ValueError too), or OSError."""
        if path.exists() and not (path.is_file() or path.is_dir()):  # whoever opens a pipe waits for ever
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError:
            check_file(path)
            raise
