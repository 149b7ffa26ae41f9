"""One process's part in the reports: each keeps its journal, the controller alone makes the session's files."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from reports.gather import CONTROLLER, Gathered, gather
from reports.journal import JournalWriter, encode
from reports.json_report import FILE_NAME as SESSION_FILE
from reports.json_report import write_result, write_session
from reports.junit import FILE_NAME as JUNIT_FILE
from reports.junit import write_junit
from reports.load import load, parsed
from reports.reserve import Reserve
from suite.errors import UsageProblem
from suite.result import Result

LIVE_PLANS = 200
"""Up to so many plans, the session's files are made anew whenever one starts or ends; above, at the end only."""


class Reporter:
    """Writes down what is announced. Never raises for a disk that is full: the verdict matters more than its record."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.folder = folder
        self.worker = worker
        self.unwritten: list[bytes] = []
        """Journal lines that the disk refused, of this process and of workers that handed theirs over."""
        self.exit_status: int | None = None
        """As last told; None: the session has not ended."""
        self.outcomes: dict[str, str] = {}
        """Plan id -> its last status told in this process; empty: started."""
        self._journal = JournalWriter(folder, worker)
        self._reserve = Reserve(folder)
        self._problems: dict[str, None] = {}
        self._loaded: dict[Path, tuple[tuple[int, int], Result]] = {}
        self._selected = 0
        self.stale = True
        """Something was told here since the session's files were made."""

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each report that could not be written as it should, in the order met."""
        return tuple(self._problems)

    def add_problems(self, problems: Iterable[str]) -> None:
        """Keep `problems` to be told at the end, each once."""
        self._problems.update(dict.fromkeys(problems))

    def announce(self, record: Mapping[str, object]) -> None:
        """Write `record` into this process's journal, and result.json if it is a verdict."""
        kind, id = record.get("kind"), str(record.get("id", ""))
        line = encode(record, self.worker)
        try:
            self._journal.append(line, durable=kind in ("outcome", "verdict"))
        except OSError as error:
            self.unwritten.append(line)
            self.add_problems([f"{self._journal.path}: cannot be written ({error.strerror or error})"])
        self.stale = True
        if kind == "session":
            self._ended(record.get("exit_status"))
        elif kind == "plan":
            self.outcomes[id] = ""
            self._forget_result(record)
        elif kind == "outcome":
            self.outcomes[id] = _status(record.get("outcome"))
        elif kind == "verdict":
            self._judged(record)
        if kind in ("plan", "outcome", "verdict") and self.worker == CONTROLLER:
            self.refresh(live=True)

    def refresh(self, *, live: bool = False) -> Gathered | None:
        """Make session.json and junit.xml say what the journals say; `live`: only if that is cheap, and then None."""
        if live and self._selected > LIVE_PLANS:
            return None
        if live:
            self._reserve.hold()
        gathered = gather(self.folder, self.unwritten, self._load_result)
        self._selected = len(gathered.report.selected)
        self.stale = False
        self._write(SESSION_FILE, partial(write_session, gathered.report, self.folder))
        self._write(JUNIT_FILE, partial(write_junit, gathered.report, self.folder / JUNIT_FILE))
        return gathered

    def close(self) -> None:
        """The session is over: what was kept in reserve is given back."""
        self._reserve.give_up()

    def _write(self, name: str, write: Callable[[], None]) -> None:
        try:
            try:
                write()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._reserve.give_up():
                    raise
                write()
        except OSError as error:
            self.add_problems([f"{self.folder / name}: cannot be written ({error.strerror or error})"])

    def _ended(self, exit_status: object) -> None:
        if isinstance(exit_status, int):
            self.exit_status = int(exit_status)

    def _judged(self, record: Mapping[str, object]) -> None:
        id, given = str(record.get("id", "")), record.get("result")
        self.outcomes[id] = _status(given.get("outcome") if isinstance(given, Mapping) else None)
        try:
            result = parsed(Result, given, f"the verdict on {id}")
            write_result(result, self._folder_of(record))
        except UsageProblem as problem:
            self.add_problems([str(problem)])
        except OSError as error:
            path = self._folder_of(record) / "result.json"
            self.add_problems([f"{path}: cannot be written ({error.strerror or error})"])

    def _forget_result(self, record: Mapping[str, object]) -> None:
        """A plan that starts again has no verdict until it is judged again."""
        try:
            (self._folder_of(record) / "result.json").unlink(missing_ok=True)
        except OSError as error:
            self.add_problems([f"{self._folder_of(record)}: cannot be written ({error.strerror or error})"])

    def _folder_of(self, record: Mapping[str, object]) -> Path:
        return self.folder / str(record.get("folder") or record.get("id"))

    def _load_result(self, path: Path) -> Result:
        """result.json, parsed once as long as the file does not change. Raises UsageProblem."""
        try:
            stat = path.stat()
        except OSError as error:
            raise UsageProblem(f"{path}: cannot be read ({error.strerror})") from None
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = self._loaded.get(path)
        if known is None or known[0] != stamp:
            known = self._loaded[path] = (stamp, load(Result, path))
        return known[1]


def _status(outcome: object) -> str:
    """The status in a told outcome; `error` where it has none that can be read."""
    status = outcome.get("status") if isinstance(outcome, Mapping) else None
    return status if isinstance(status, str) else "error"
