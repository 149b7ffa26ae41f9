"""The bytes of a log in, events out: of one process, or of several whose lines are labelled. Standard library only."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Tuple

from suite.drivers.scripts.adapters.adapter import Adapter
from suite.drivers.scripts.adapters.course import Event
from suite.drivers.scripts.adapters.text import Lines

_LABEL = re.compile(r" *(\d+): ?")
"""What `srun -l` puts before every line: the number of the task, as wide as the largest."""


class LogReader:
    """Feeds an adapter with a log's bytes, however they were cut."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._lines = Lines()

    def feed(self, data: bytes, t: float) -> List[Event]:
        """The events of what arrived at `t`.

        A bar has no line end while its step lasts; it is read as soon as it is whole, and once more with its line.
        """
        events = [event for line in self._lines.feed(data) for event in self._adapter.feed(line, t)]
        begun = self._lines.begun()
        return events + (self._adapter.feed(begun, t) if begun.endswith("]") else [])

    def finish(self, code: int, t: float) -> List[Event]:
        """The last events; `code`: the script's exit status, negative for a signal."""
        events = [event for line in self._lines.finish() for event in self._adapter.feed(line, t)]
        return events + self._adapter.finish(code, t)


class LabelledLog:
    """Takes the log of `srun -l` apart: one adapter for each task, in whose words its events are told.

    srun writes a label and a line end with every piece, so a line may come in pieces that nobody can join: what is
    torn is not read, and the next drawing of a bar tells it again. Lines without a label are nobody's.
    """

    def __init__(self, make: Callable[[], Adapter]) -> None:
        self._make = make
        # The label stands before a whole line, with every drawing of a bar in it.
        self._lines = Lines("\n")
        self._adapters: Dict[int, Adapter] = {}

    @property
    def tasks(self) -> Tuple[int, ...]:
        """The tasks that were heard, in order."""
        return tuple(sorted(self._adapters))

    def feed(self, data: bytes, t: float) -> List[Tuple[int, Event]]:
        """(task, event) of what arrived at `t`."""
        return [told for line in self._lines.feed(data) for told in self._line(line, t)]

    def finish(self, code: int, t: float) -> List[Tuple[int, Event]]:
        """The last events of every task."""
        told = [pair for line in self._lines.finish() for pair in self._line(line, t)]
        for task in self.tasks:
            told += [(task, event) for event in self._adapters[task].finish(code, t)]
        return told

    def _line(self, line: str, t: float) -> List[Tuple[int, Event]]:
        label = _LABEL.match(line)
        if label is None:
            return []
        task = int(label[1])
        adapter = self._adapters.setdefault(task, self._make())
        return [(task, event) for event in adapter.feed(line[label.end() :], t)]
