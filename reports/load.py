"""Reading what an earlier session, perhaps of another version, has left: a record, or one clean sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from suite.errors import UsageProblem
from suite.record import Record
from suite.schema_version import check_version

R = TypeVar("R", bound=Record)


def load(kind: type[R], path: Path) -> R:
    """The record of `kind` in `path`. Raises UsageProblem naming the file, what is wrong with it, and what to do."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # whoever opens a pipe waits for ever
        raise UsageProblem(f"{path}: not a regular file; name a folder that a session wrote")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read ({error.strerror}); name a folder that a session wrote") from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{path}: not JSON ({str(error).partition(chr(10))[0]}); {_REMEDY}") from None
    check_version(data, path)
    return parsed(kind, data, str(path))


def parsed(kind: type[R], data: object, name: str) -> R:
    """`data`, plain JSON, as a record of `kind`. Raises UsageProblem naming the first key that is wrong."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the whole"
        more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        raise UsageProblem(
            f"{name}: not a {kind.__name__} of schema 1: {key}: {first['msg']}{more}; {_REMEDY}"
        ) from None


_REMEDY = "`python -m reports rebuild SESSION` makes session.json again, `rejudge --write` a result.json"
