"""data.toml, typed: what a case reads, and where it comes from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from suite.record import Record
from suite.spec_types import DataPath, Preset, Text


class DataFile(Record):
    """One file or folder that a preset reads."""

    preset: Preset | tuple[Preset, ...]
    path: DataPath
    """Relative to the data folder, or `case:NAME` for a file in the case's own data/."""
    bytes: Annotated[int, Field(ge=0)] = 0
    """0: not known here; only presence is checked."""
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    """Of the file, or the tree digest of a folder; empty: not known here."""
    required: bool = True
    source: Text
    licence: Text
    prepare: str = ""
    """The command that makes it."""

    @property
    def presets(self) -> tuple[str, ...]:
        """Whom it serves."""
        return (self.preset,) if isinstance(self.preset, str) else self.preset


class DataSpec(Record):
    """data.toml: every file with size, digest, origin and licence."""

    file: tuple[DataFile, ...] = ()

    def of(self, preset: str) -> tuple[DataFile, ...]:
        """The files that `preset` reads."""
        return tuple(entry for entry in self.file if preset in entry.presets)
