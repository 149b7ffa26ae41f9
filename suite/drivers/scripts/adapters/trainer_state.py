"""trainer_state.json, in which transformers' Trainer leaves the history of its log. Standard library only."""

from __future__ import annotations

import json
import os
import re
from typing import Dict, List, Optional, Tuple

from suite.drivers.scripts.adapters.hugging_face import from_items
from suite.drivers.scripts.adapters.observed import EvaluationDone, Fact, NotFinite, Observation, TrainRuntime

NAME = "trainer_state.json"
MOST_BYTES = 256 << 20
"""A larger file is not read: it comes from the code under test."""

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def find_state(folders: List[str], since: float) -> Optional[str]:
    """The newest state in these folders, in their checkpoints where they have none; None: there is none.

    One that was written before `since` (seconds of the wall clock) is of another run.
    """
    found = [path for folder in folders for path in _states(folder) if os.path.getmtime(path) >= since - 1.0]
    return max(found, key=os.path.getmtime) if found else None


def _states(folder: str) -> List[str]:
    own = os.path.join(folder, NAME)
    if os.path.isfile(own):
        return [own]
    try:
        names = [found for found in map(_CHECKPOINT.fullmatch, os.listdir(folder)) if found]
    except OSError:
        return []
    newest = sorted(names, key=lambda found: int(found[1]))[-1:]
    paths = [os.path.join(folder, found[0], NAME) for found in newest]
    return [path for path in paths if os.path.isfile(path)]


def read_state(path: str) -> List[Observation]:
    """What the state says beyond the log: steps in all, evaluations with their steps, the time that training took.

    A file that is no such state says nothing. Its losses have no times, so that no curve can be made of them.
    """
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            state = json.load(file)
        history = state["log_history"]
        entries = [_entry(entry) for entry in history if isinstance(entry, dict)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    said: List[Observation] = []
    steps = state.get("max_steps")
    if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0:
        said.append(Fact("steps", steps))
    for step, items in entries:
        for observation in from_items(items):
            if isinstance(observation, (EvaluationDone, NotFinite)) and step is not None:
                said.append(observation._replace(step=step))
            elif isinstance(observation, TrainRuntime):
                said.append(observation)
    return said


def _entry(entry: Dict[str, object]) -> Tuple[Optional[int], Dict[str, str]]:
    """(step, items) with the numbers as text, as they stand in a log."""
    step = entry.get("step")
    items = {name: repr(value) for name, value in entry.items() if isinstance(value, (int, float))}
    return (step if isinstance(step, int) and not isinstance(step, bool) else None), items
