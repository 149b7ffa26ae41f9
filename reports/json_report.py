"""session.json, schema version 1: the session, what it selected, and one result a selected plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from reports.atomic import replace_file
from reports.load import load
from suite.record import Record
from suite.result import Result

FILE_NAME = "session.json"


class Git(Record):
    """The checkout that the suite ran from."""

    commit: str | None = None
    """Full hash; null: not a git checkout, or git could not tell."""
    dirty: bool | None = None
    """True: files differ from that commit, or new ones lie beside them."""


class SessionFacts(Record):
    """One invocation of pytest."""

    id: str
    started: str | None = None
    """UTC, ISO 8601 with Z."""
    finished: str | None = None
    """Null: the session was killed, or still runs."""
    command: str = ""
    """As typed, quoted for a shell."""
    exit_status: int | None = None
    """Of pytest; null: the session was killed, or still runs."""
    git: Git = Git()
    versions: Mapping[str, str] = {}
    ci: Mapping[str, str] = {}
    """Of a short allow list of a CI server's variables: where this session can be found there."""


class SessionReport(Record):
    """session.json: readable without this project."""

    schema_version: Literal[1] = 1
    session: SessionFacts
    selected: tuple[str, ...]
    """Ids of the plans that pytest selected, in their order."""
    results: tuple[Result, ...]
    """One for each selected plan, in the same order, whatever became of it."""


def write_session(report: SessionReport, folder: Path) -> None:
    """Write `<folder>/session.json` atomically; the same report gives the same bytes. Raises OSError."""
    replace_file(folder / FILE_NAME, (report.model_dump_json(indent=1) + "\n").encode("utf-8"))


def read_session(folder: Path) -> SessionReport:
    """The report in `<folder>/session.json`. Raises UsageProblem."""
    return load(SessionReport, folder / FILE_NAME)


def write_result(result: Result, folder: Path) -> None:
    """Write `<folder>/result.json` atomically, making the folder if it is missing. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "result.json", (result.model_dump_json(indent=1) + "\n").encode("utf-8"))
