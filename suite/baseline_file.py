"""baselines/<vendor>/<plan id>-<fingerprint>.toml: figures that a person has agreed to be measured against."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from suite.errors import UsageProblem
from suite.events import is_plain_file
from suite.figures import Figures
from suite.toml_file import read_table

State = Literal["proposed", "approved", "expired", "quarantined"]

Day = Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$")]
"""`2026-01-31`, text, or empty."""

MAX_FILES = 10_000
"""Files looked at below a folder of baselines."""


class Baseline(Figures):
    """Figures with their standing. Only an approved one is ever judged by."""

    schema_version: Literal[1] = 1
    state: State
    reason: str = ""
    """Why it is expired or quarantined, or what is special about it."""
    proposed: Day
    approved: Day = ""
    approved_by: str = ""
    """Whoever answers for it, as the project names its reviewers."""
    expires: Day = ""
    """From this day on it no longer gates; empty: until somebody says so."""
    source: str
    """Id of the session that measured it, or of several, in order."""

    @model_validator(mode="after")
    def _standing_is_explained(self) -> Baseline:
        if self.state == "approved" and not (self.approved and self.approved_by):
            raise ValueError("an approved baseline names the day and the reviewer: set approved and approved_by")
        if self.state in ("expired", "quarantined") and not self.reason:
            raise ValueError(f"state {self.state!r} needs a reason")
        if not self.metric:
            raise ValueError("a baseline without any metric compares with nothing")
        return self

    def standing(self, day: str) -> State:
        """The state on `day` (ISO), which is the day of the run that is judged, so that judging again says the same."""
        ended = self.state == "approved" and self.expires and day >= self.expires
        return "expired" if ended else self.state


def read_baseline(path: Path) -> Baseline:
    """The baseline in a TOML file. Raises UsageProblem naming file, key and what is allowed."""
    return read_table(path, Baseline, path.as_posix())


def baseline_files(path: Path) -> Iterator[Path]:
    """`path` itself, or the baseline files below it: the rest of a vendor's folder (proofs, capabilities) is none."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for file in sorted(islice(path.rglob("*.toml"), MAX_FILES)):
            if is_plain_file(file) and _says_state(file):
                yield file


def approved(path: Path) -> Iterator[tuple[Path, Baseline]]:
    """The approved baselines below `path` that can be read; a file that cannot is passed over here, never used."""
    for file in baseline_files(path):
        try:
            baseline = read_baseline(file)
        except UsageProblem:
            continue
        if baseline.state == "approved":
            yield file, baseline


def _says_state(path: Path) -> bool:
    """It is meant as a baseline: other TOML in the same folders is not ours to complain about."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True  # whoever reads it says what is wrong
    return not data.keys().isdisjoint({"state", "fingerprint"})
