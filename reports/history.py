"""The numbers of many sessions in one embedded database, made from the session folders, which stay the truth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from reports.json_report import SessionReport, read_session
from suite.errors import UsageProblem
from suite.figures import told

VERSION = 1
FILE_NAME = "history.sqlite"

SCHEMA = """
CREATE TABLE session (
    id TEXT PRIMARY KEY, started TEXT NOT NULL, "commit" TEXT, exit_status INTEGER, folder TEXT NOT NULL,
    stamp INTEGER NOT NULL
) STRICT;
CREATE TABLE result (
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE, plan TEXT NOT NULL, model TEXT NOT NULL,
    framework TEXT NOT NULL, vendor TEXT NOT NULL, machine TEXT NOT NULL, topology TEXT NOT NULL, preset TEXT NOT NULL,
    mode TEXT NOT NULL, division TEXT NOT NULL, status TEXT NOT NULL, category TEXT NOT NULL, fingerprint TEXT NOT NULL,
    measurement_version TEXT NOT NULL, driver_version TEXT, PRIMARY KEY (session, plan)
) STRICT;
CREATE TABLE metric (
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE, plan TEXT NOT NULL, name TEXT NOT NULL,
    unit TEXT NOT NULL, value REAL NOT NULL, runs INTEGER NOT NULL, PRIMARY KEY (session, plan, name)
) STRICT;
"""


class Seen(NamedTuple):
    """One measurement of the past."""

    started: str
    session: str
    plan: str
    status: str
    category: str
    fingerprint: str
    value: float | None
    """None: that session did not measure it."""
    unit: str
    runs: int


def update(database: Path, results: Path, *, rebuild: bool = False) -> tuple[str, ...]:
    """Take in the sessions below `results` that are new or changed; a sentence for each that cannot be read.

    `rebuild` begins anew, and so forgets sessions whose folders are gone. Raises UsageProblem, OSError.
    """
    if not results.is_dir():
        raise UsageProblem(f"{results}: no such folder; name the one that holds the sessions")
    if rebuild:
        _check_ours(database)
        database.unlink(missing_ok=True)
    problems = []
    with closing(_opened(database)) as connection:
        known = dict(connection.execute("SELECT folder, stamp FROM session").fetchall())
        for file in sorted(results.glob("*/session.json")):
            # `latest` names a session that is there under its own name.
            if file.parent.is_symlink() or known.get(file.parent.name) == file.stat().st_mtime_ns:
                continue
            try:
                _take_in(connection, file, read_session(file.parent))
            except UsageProblem as problem:
                problems.append(str(problem))
        connection.commit()
    return tuple(problems)


def trend(database: Path, metric: str, plan: str = "*") -> Sequence[Seen]:
    """Every measurement of the plans that the glob `plan` matches, by plan and time. Raises UsageProblem."""
    query = """
        SELECT started, result.session, result.plan, status, category, fingerprint, value, coalesce(unit, ''),
               coalesce(runs, 0)
        FROM result JOIN session ON session.id = result.session
        LEFT JOIN metric ON (metric.session, metric.plan, metric.name) = (result.session, result.plan, ?)
        WHERE result.plan GLOB ? ORDER BY result.plan, started, result.session
    """
    with closing(_opened(database)) as connection:
        return [Seen(*row) for row in connection.execute(query, (metric, plan))]


def rows(seen: Sequence[Seen]) -> Iterator[tuple[str, ...]]:
    """Cells for a table; the change is told against the last measurement of an equal fingerprint only."""
    last: dict[tuple[str, str], float] = {}
    before = ""
    for one in seen:
        key = (one.plan, one.fingerprint)
        change = "-"
        if one.value is not None and one.value > 0:
            if key in last:
                change = f"{100 * (one.value / last[key] - 1):+.2f} %"
            elif before == one.plan:
                change = "other environment"
            last[key] = one.value
        before = one.plan
        value = "-" if one.value is None else f"{one.value:.5g} {one.unit}".rstrip()
        outcome = f"{one.status}: {one.category}" if one.category else one.status
        yield (one.plan, one.started, one.session, outcome, value, str(one.runs), change, one.fingerprint[:12])


def _take_in(connection: sqlite3.Connection, file: Path, report: SessionReport) -> None:
    session = report.session
    connection.execute("DELETE FROM session WHERE id = ? OR folder = ?", (session.id, file.parent.name))
    connection.execute(
        "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?)",
        (
            session.id,
            session.started or "",
            session.git.commit,
            session.exit_status,
            file.parent.name,
            file.stat().st_mtime_ns,
        ),
    )
    for result in report.results:
        facts = [result.id, result.model, result.framework, result.vendor, result.machine, str(result.topology)]
        facts += [result.preset, result.mode, result.division, result.outcome.status, result.outcome.category]
        facts += [result.comparability_key, result.measurement_version]
        row = (session.id, *facts, told(result.environment).get("driver_version"))
        connection.execute(f"INSERT INTO result VALUES ({', '.join('?' * len(row))})", row)
        connection.executemany(
            "INSERT INTO metric VALUES (?, ?, ?, ?, ?, ?)",
            [
                (session.id, result.id, name, metric.unit, metric.value, len(metric.values))
                for name, metric in result.metrics.items()
            ],
        )


def _opened(database: Path) -> sqlite3.Connection:
    """The database, made if it is missing. Raises UsageProblem for a file that is none of ours."""
    try:
        connection = sqlite3.connect(database, timeout=30)
        connection.execute("PRAGMA foreign_keys = ON")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error as error:
        raise UsageProblem(f"{database}: not a database ({error}); name another file with --database") from None
    if tables and version != VERSION:
        connection.close()
        raise UsageProblem(
            f"{database}: version {version} of the history, this version reads {VERSION}; --rebuild makes it anew"
        )
    if not tables:
        connection.executescript(f"{SCHEMA} PRAGMA user_version = {VERSION};")
    return connection


def _check_ours(database: Path) -> None:
    """Raise UsageProblem rather than delete what is no history."""
    if not database.exists():
        return
    try:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        names = set()
    if not {"session", "result", "metric"} <= names:
        raise UsageProblem(f"{database}: not a history of sessions, so it is not replaced; name another file")
