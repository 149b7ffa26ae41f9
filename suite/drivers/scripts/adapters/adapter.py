"""An adapter: lines of a log in, events out. Standard library only."""

from __future__ import annotations

import re
import time
from typing import Callable, List, Optional, Sequence, Tuple

from suite.drivers.scripts.adapters.bars import read_bars
from suite.drivers.scripts.adapters.course import Course, Event
from suite.drivers.scripts.adapters.hugging_face import TrainerLines
from suite.drivers.scripts.adapters.nemo import ProgressLines
from suite.drivers.scripts.adapters.observed import Folder, Observation
from suite.drivers.scripts.adapters.text import clean
from suite.drivers.scripts.adapters.trainer_state import find_state, read_state

Read = Callable[[str], List[Observation]]
"""What one line says."""


class Adapter:
    """Reads the log of one training: `feed` each line as it arrives, then `finish` once.

    Events come in the order of their times. `samples` are those of all ranks, so that one stream, whose header says
    how many `devices` it speaks for, tells the whole run. The last event is run_stop. Once run_start has been told, its
    `data_parallel` says how many devices the log's own batch sizes imply, where they do.
    """

    bars = False
    """Progress bars of tqdm."""
    trainer = False
    """Lines of transformers' Trainer."""
    state = False
    """trainer_state.json, at the end."""
    nemo = False
    """Progress lines of NeMo."""

    def __init__(self, batch: Optional[int] = None, folders: Sequence[str] = ()) -> None:
        """`batch`: samples of a step of all ranks, where the log does not say; `folders`: where results will lie."""
        self._course = Course(batch, by_epochs=self.trainer, results=self.trainer)
        self._readers: List[Read] = []
        if self.trainer:
            self._readers.append(TrainerLines().read)
        if self.nemo:
            self._readers.append(ProgressLines().read)
        elif self.bars:
            self._readers.append(read_bars)
        self._folders = list(folders)
        self._since = time.time()

    def feed(self, line: str, t: float) -> List[Event]:
        """The events that a line completes which arrived at `t`. It may hold carriage returns and control sequences."""
        events: List[Event] = []
        for part in re.split("[\r\n]", line):
            for read in self._readers:
                for observation in read(clean(part)):
                    events += self._take(observation, t)
        return events

    def finish(self, code: int, t: float) -> List[Event]:
        """The last events; `code`: the script's exit status, negative for a signal."""
        events: List[Event] = []
        path = find_state(self._folders, self._since) if self.state else None
        for observation in read_state(path) if path is not None else ():
            events += self._take(observation, t)
        return events + self._course.finish(code, t)

    def _take(self, observation: Observation, t: float) -> List[Event]:
        if not isinstance(observation, Folder):
            return self._course.take(observation, t)
        if observation.path not in self._folders:
            self._folders.append(observation.path)
        return []


class Tqdm(Adapter):
    """A script that draws a progress bar: steps and their times, the loss where the bar shows one."""

    bars = True


class HuggingFaceTrainer(Adapter):
    """A script with transformers' Trainer: its INFO lines, its bar, its dictionaries, and what it leaves behind."""

    bars = trainer = state = True


class TrainerState(Adapter):
    """What trainer_state.json adds to another adapter; alone it has no times, hence no steps."""

    state = True


class NeMo(Adapter):
    """NeMo's and Lightning's progress lines."""

    nemo = True


def combined(kinds: Sequence[type], batch: Optional[int] = None, folders: Sequence[str] = ()) -> Adapter:
    """One adapter that reads all that these read, so that one line is told once."""
    bases: Tuple[type, ...] = tuple(dict.fromkeys(kinds)) or (Adapter,)
    flags = {name: any(getattr(kind, name) for kind in bases) for name in ("bars", "trainer", "state", "nemo")}
    made: Adapter = type("Combined", (Adapter,), flags)(batch, folders)
    return made
