"""The version of plan.json, result.json and session.json, and what is said of a file of a later one."""

from __future__ import annotations

import json
from pathlib import Path

from suite.errors import UsageProblem

SCHEMA_VERSION = 1
"""The newest that this version reads."""


class NewerSchema(UsageProblem, ValueError):
    """A file of a later version: sound, so never to be overwritten."""


def check_version(data: object, path: Path) -> None:
    """Raise NewerSchema where plain JSON says that a later version wrote it."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path}: schema_version {version} is newer than {SCHEMA_VERSION}, the newest that this version reads; "
            "upgrade, or use the version of Trainmark that wrote it"
        )


def check_file(path: Path) -> None:
    """The same of a file; one that is absent or broken is not this function's to tell."""
    if not path.is_file():
        return
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    check_version(data, path)
