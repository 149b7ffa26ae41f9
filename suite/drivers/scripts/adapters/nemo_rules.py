"""What the overrides of NeMo's launcher must keep among themselves: found at planning, a mistake costs nothing.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Sequence

LIMIT, MOST = "training.run.time_limit", "training.trainer.max_time"
STEPS, EVERY = "training.trainer.max_steps", "training.trainer.val_check_interval"
MARGIN = "--margin_s"
"""Seconds that a run keeps for its end."""

# `0-02:00:00`, as Slurm writes a time, or `00:01:30:00`, as Lightning does.
_CLOCK = re.compile(r"(?:(\d+)[-:])?(\d+):(\d\d):(\d\d)")


def problem(words: Sequence[str]) -> str:
    """The sentence for words that cannot go together, with the remedy; empty: they can, or say too little to tell."""
    given = _overrides(words)
    for key in (LIMIT, MOST):
        if key in given and _seconds(given[key]) is None:
            return "%s=%s is no time: write days, hours, minutes and seconds, as in 0-02:00:00" % (key, given[key])
    return _times(given, _margin(words)) or _steps(given)


def _times(given: Dict[str, str], margin: int) -> str:
    limit, most = _seconds(given.get(LIMIT, "")), _seconds(given.get(MOST, ""))
    if limit is None or most is None or most + margin <= limit:
        return ""
    return "%s=%s leaves less than %d s of %s=%s for the end of the run: lower the one, or raise the other" % (
        *(MOST, given[MOST], margin, LIMIT, given[LIMIT]),
    )


def _steps(given: Dict[str, str]) -> str:
    steps, every = (given.get(key, "") for key in (STEPS, EVERY))
    if not (steps.isdigit() and every.isdigit()) or int(every) <= int(steps):
        return ""
    return "%s=%s is more than %s=%s: no validation would be made; lower it" % (EVERY, every, STEPS, steps)


def _overrides(words: Sequence[str]) -> Dict[str, str]:
    """KEY -> VALUE of every word that is one."""
    pairs = [word.partition("=") for word in words]
    return {key: value for key, equals, value in pairs if equals}


def _margin(words: Sequence[str]) -> int:
    for flag, value in zip(words, words[1:]):
        if flag == MARGIN and value.isdigit():
            return int(value)
    return 0


def _seconds(text: str) -> Optional[int]:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
