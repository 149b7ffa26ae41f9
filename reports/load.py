"""Reading what an earlier session, perhaps of another version, has left: a record, or one clean sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from suite.errors import UsageProblem
from suite.record import Record
from suite.schema_version import check_version

R = TypeVar("R", bound=Record)

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""A surrogate, whole pairs among them: a look that costs little."""


def load(kind: type[R], path: Path) -> R:
    """The record of `kind` in `path`. Raises UsageProblem naming the file, what is wrong with it, and what to do."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # whoever opens a pipe waits for ever
        raise UsageProblem(f"{path}: not a regular file; name a folder that a session wrote")
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read ({error.strerror}); name a folder that a session wrote") from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{path}: not JSON ({str(error).partition(chr(10))[0]}); {_REMEDY}") from None
    if _HALF.search(text) and _holds_half(data):
        raise UsageProblem(f"{path}: a text of it holds half a character, as \\ud800 is; {_REMEDY}")
    check_version(data, path)
    return parsed(kind, data, str(path))


def _holds_half(data: object) -> bool:
    """Whether it cannot be written again: JSON can name a half of a pair, UTF-8 has none."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


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
