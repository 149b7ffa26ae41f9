"""Deletes old sessions, and nothing else: folders that are ours, finished, and that nobody refers to."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from reports.json_report import SessionReport, read_session
from suite.baseline_file import baseline_files, read_baseline
from suite.errors import UsageProblem

NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
"""What the harness calls the folder of a session."""

RESTING = timedelta(hours=1)
"""A session without an end that was touched more recently may still run."""


class Rules(NamedTuple):
    """What is kept."""

    keep: timedelta
    keep_failed: bool
    now: datetime


class Choice(NamedTuple):
    """What becomes of one folder."""

    folder: Path
    goes: bool
    why: str


def duration(text: str) -> timedelta:
    """`30d`, `12h`. Raises UsageProblem."""
    match = re.fullmatch(r"(\d{1,6})([dh])", text)
    if not match:
        raise UsageProblem(f"--keep {text!r} is no duration; write days or hours, as in 30d")
    return timedelta(hours=int(match[1]) * (24 if match[2] == "d" else 1))


def choose(results: Path, rules: Rules, baselines: Sequence[Path]) -> list[Choice]:
    """What would go of the sessions below `results`. Raises UsageProblem."""
    if not results.is_dir():
        raise UsageProblem(f"{results}: no such folder; name the one that holds the sessions")
    sources = set(_sources(baselines))
    folders = [path for path in sorted(results.iterdir()) if path.is_dir() and not path.is_symlink()]
    choices = [_choice(folder, rules, sources) for folder in folders]
    # What a kept session was measured against must stay with it.
    held = set(_bases(choice.folder for choice in choices if not choice.goes))
    return [
        choice._replace(goes=False, why="a kept session was measured against it")
        if choice.goes and choice.folder.resolve() in held
        else choice
        for choice in choices
    ]


def prune(choices: Iterable[Choice]) -> Iterator[Path]:
    """Delete what goes; yields each folder when it is gone. Raises OSError."""
    for choice in choices:
        if choice.goes:
            # Under another name first: a deletion that is interrupted leaves no half session to be taken for a whole.
            doomed = choice.folder.with_name(f".pruned-{choice.folder.name}")
            choice.folder.rename(doomed)
            shutil.rmtree(doomed)
            yield choice.folder


def _choice(folder: Path, rules: Rules, sources: set[str]) -> Choice:
    if not NAME.fullmatch(folder.name):
        return Choice(folder, False, "not the name of a session")
    try:
        report = read_session(folder)
    except UsageProblem as problem:
        return Choice(folder, False, f"cannot be read: {problem}")
    return Choice(folder, *_fate(report, folder, rules, sources))


def _fate(report: SessionReport, folder: Path, rules: Rules, sources: set[str]) -> tuple[bool, str]:
    """Whether it goes, and why or why not."""
    began = datetime.strptime(folder.name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    latest = folder.parent / "latest"
    touched = datetime.fromtimestamp((folder / "session.json").stat().st_mtime, UTC)
    if report.session.id != folder.name:
        return False, "its session.json is of another session"
    if rules.now - began <= rules.keep:
        return False, "not old enough"
    if latest.exists() and latest.resolve() == folder.resolve():
        return False, "the latest session"
    if report.session.id in sources:
        return False, "the source of a baseline"
    if report.session.exit_status is None and rules.now - touched < RESTING:
        return False, "it may still run"
    if _uncollected(folder):
        return False, f"jobs of it are not collected; say pytest suite --attach {folder}"
    if rules.keep_failed and any(result.outcome.status in ("failed", "error") for result in report.results):
        return False, "a plan failed"
    return True, f"begun {began:%Y-%m-%d}"


def _uncollected(folder: Path) -> bool:
    """Whether a plan was submitted as a job that nobody has judged: it may wait for weeks, and runs in this folder."""
    jobs = (path.parent.name for path in folder.glob("jobs/*/job.json"))
    return any(not (folder / plan / "result.json").is_file() for plan in jobs)


def _sources(baselines: Sequence[Path]) -> Iterator[str]:
    """Ids of the sessions that baselines come from, whatever their state. A broken file stops it all: UsageProblem."""
    for path in baselines:
        for file in baseline_files(path):
            yield from read_baseline(file).source.split()


def _bases(sessions: Iterable[Path]) -> Iterator[Path]:
    """Sessions that the harness of these has reused a base from."""
    for log in (log for session in sessions for log in session.glob("*/harness.jsonl")):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                data = json.loads(line)
            except ValueError:
                continue
            place = data.get("folder") if isinstance(data, dict) and data.get("event") == "base" else None
            if isinstance(place, str) and Path(place).is_absolute():
                yield from Path(place).resolve().parents
