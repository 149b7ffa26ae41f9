"""How cells of the sabotage matrix ended, and a folder that keeps it: one file a cell, shared by several programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from benchmarks.sabotage_cells import Cell

NO_CHECKPOINTS = shutil.ignore_patterns("checkpoints", "*.pt")


class Ended(NamedTuple):
    """How a cell ended."""

    cell: Cell
    status: str
    category: str
    reason: str
    seconds: float
    where: Mapping[str, Any]
    """The host's processor and cores, the versions of Python and the framework, the day (UTC)."""

    @property
    def as_named(self) -> bool:
        """Whether that is what the table says."""
        return (self.status, self.category) == (self.cell.status, self.cell.category)

    @property
    def outcome(self) -> str:
        """Status and category, in words."""
        return f"{self.status}: {self.category}".removesuffix(": ")

    def row(self) -> str:
        """Of the Markdown table."""
        cell = self.cell
        what = f"`{cell.name}`" if cell.name else "healthy twin"
        ended = self.outcome + ("" if self.as_named else " **(not as named)**")
        return f"| {cell.case} | {what} | {cell.mode} {cell.topology} | {ended} | {self.reason.replace('|', '/')} |"


class Kept:
    """A folder of cells that ended. A cell is run by whoever locks it first; a program that ends lets go of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, cell: Cell) -> Ended | None:
        """How it ended; None where nobody has run it to its end."""
        try:
            told = json.loads(self._path(cell).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Ended(cell, told["status"], told["category"], told["reason"], told["seconds"], told["where"])

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether it is ours to run: nobody else runs it, and it has not ended."""
        lock = FileLock(self._folder / f"{cell.key}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield self.find(cell) is None
        finally:
            lock.release()

    def keep(self, ended: Ended, session: Path) -> None:
        """Write the file; of a cell that did not end as named also its session, without the models."""
        if not ended.as_named and session.is_dir():
            shutil.copytree(session, self._folder / ended.cell.key, ignore=NO_CHECKPOINTS, dirs_exist_ok=True)
        path = self._path(ended.cell)
        told = {key: value for key, value in ended._asdict().items() if key != "cell"}
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"cell": ended.cell.words(), **told}, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.key}.json"
