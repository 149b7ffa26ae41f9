"""Whether the evidence under a stored verdict is still the files that were judged."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from reports.load import load
from suite.artifacts import file_digest
from suite.errors import UsageProblem
from suite.events import is_plain_file, shown
from suite.result import Result

NAMES = frozenset({"plan.json", "run.json", "harness.jsonl"})
"""Beside the streams in events/: what a verdict is made from. Logs and checkpoints may be pruned."""
VERDICT = "result.json"
REMEDY = "see `python -m reports rejudge`"


def changed_evidence(session: Path, result: Result) -> str:
    """The first file that is another one now, or holds another verdict, as a sentence; empty where none does.

    Nor is there one in a session without its runs.
    """
    if result.id in ("", ".", "..") or PurePosixPath(result.id).name != result.id or "\0" in result.id:
        return f"id {shown(result.id)} is no name of a folder: {REMEDY}"
    folder = session / result.id
    if not os.path.lexists(folder):
        return ""
    for artifact in result.artifacts:
        place = PurePosixPath(artifact.path)
        if place.name not in NAMES and place.parent.name != "events":
            continue
        if (what := _differs(folder / place, artifact.sha256)) is not None:
            return f"{result.id}/{artifact.path}: {what} since the verdict, {REMEDY}"
    said = _says_otherwise(folder / VERDICT, result)
    return f"{result.id}/{VERDICT}: {said}, {REMEDY}" if said else ""


def _says_otherwise(path: Path, result: Result) -> str:
    """How the verdict beside the runs differs from the session's; empty: it is the same."""
    if not path.exists():
        return "gone since the verdict"
    try:
        stored = load(Result, path)
    except UsageProblem:
        return "unreadable"
    if stored == result:
        return ""
    if stored.outcome != result.outcome:
        return f"says {stored.outcome.status}, session.json {result.outcome.status}"
    return "another verdict than that of session.json"


def _differs(path: Path, digest: str) -> str | None:
    try:
        if not is_plain_file(path):
            return "gone"
        return None if file_digest(path) == digest else "changed"
    except (OSError, ValueError):
        return "unreadable"
