"""Whether the evidence under a stored verdict is still the one that the harness sealed when the runs ended."""

from __future__ import annotations

from pathlib import Path

from suite.consistency import check_seals
from suite.events import BadEvents
from suite.harness_log import read_harness


def broken_seal(plan_folder: Path) -> str:
    """The first stream that was changed since, as a sentence; empty where none was, or none lies here."""
    for log in sorted([*plan_folder.glob("r*/harness.jsonl"), *plan_folder.glob("base/r*/harness.jsonl")]):
        try:
            check_seals(log.parent, read_harness(log.parent).seals)
        except BadEvents as problem:
            where = log.parent.relative_to(plan_folder.parent).as_posix()
            return f"{where}/{problem}: the stored verdict is of other evidence, see `python -m reports rejudge`"
    return ""
