"""The files of a case: what data.toml lists, and where each of them lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.data_spec import DataFile, DataSpec
from suite.errors import UsageProblem, did_you_mean
from suite.toml_file import read_table, shown
from tools.data_digest import Stamps, sha256_of, size_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One entry of data.toml, located."""

    entry: DataFile
    path: Path
    stamps: Stamps | None
    """None for a file that travels with the repository: it is small, and nothing is written beside it."""

    @property
    def url(self) -> str:
        """Where it can be fetched without a person; empty if the source is a sentence."""
        return self.entry.source if re.fullmatch(r"(https?|file)://\S+", self.entry.source) else ""

    @property
    def present(self) -> bool:
        """It exists, whatever it holds."""
        return self.path.exists()

    def problem(self) -> str:
        """What is wrong with it at first sight, without hashing; empty: nothing."""
        if not self.present:
            return "missing"
        size = size_of(self.path)
        if self.entry.bytes and size != self.entry.bytes:
            return f"{size:,} bytes, expected {self.entry.bytes:,}"
        return ""

    def digest(self) -> str:
        """SHA-256 of what lies there; computed only if it changed since the last time."""
        return self.stamps.digest(self.path) if self.stamps else sha256_of(self.path)

    def verified(self) -> bool:
        """An earlier hash of this very content equals the known one. Hashes nothing, so a new file is not verified."""
        known = self.stamps.known(self.path) if self.stamps and self.present else ""
        return bool(self.entry.sha256) and known == self.entry.sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """The data of one case, as far as a preset needs it."""

    case: str
    case_dir: Path
    data_dir: Path | None
    items: tuple[Item, ...]


def find_case(suite_dir: Path, model: str, framework: str) -> Path:
    """The folder of the case. Raises UsageProblem with what there is."""
    folder = suite_dir / "cases" / model / framework
    if (folder / "case.toml").is_file():
        return folder
    if not (suite_dir / "cases" / model).is_dir():
        known = [path.name for path in (suite_dir / "cases").glob("*") if path.is_dir()]
        raise UsageProblem(f"{model}: no such model under suite/cases{did_you_mean(model, known)}")
    known = [path.parent.name for path in (suite_dir / "cases" / model).glob("*/case.toml")]
    raise UsageProblem(f"--framework {framework}: {model} has no such case{did_you_mean(framework, known)}")


def open_data(suite_dir: Path, model: str, framework: str, preset: str, data_dir: Path | None) -> DataSet:
    """The files of `preset` (empty: of all presets), each located. Raises UsageProblem."""
    case_dir = find_case(suite_dir, model, framework)
    path = case_dir / "data.toml"
    if not path.is_file():
        return DataSet(case=f"{model}/{framework}", case_dir=case_dir, data_dir=data_dir, items=())
    spec = read_table(path, DataSpec, shown(path, suite_dir.parent))
    entries = spec.of(preset) if preset else spec.file
    if preset and not entries:
        known = {name for entry in spec.file for name in entry.presets}
        raise UsageProblem(
            f"--preset {preset}: {shown(path, suite_dir.parent)} lists nothing for it{did_you_mean(preset, known)}"
        )
    items = _locate(entries, case_dir, data_dir, f"python -m tools data … {model} --data-dir DIR")
    return DataSet(case=f"{model}/{framework}", case_dir=case_dir, data_dir=data_dir, items=items)


def _locate(entries: Sequence[DataFile], case_dir: Path, data_dir: Path | None, remedy: str) -> tuple[Item, ...]:
    """Each entry with its path: below the data folder, or in the case's own data/."""
    items = []
    stamps = Stamps(folder=data_dir) if data_dir else None
    for entry in entries:
        own = entry.path.startswith("case:")
        if own:
            items.append(Item(entry=entry, path=case_dir / "data" / entry.path.removeprefix("case:"), stamps=None))
        elif data_dir is None:
            raise UsageProblem(f"--data-dir is missing: {entry.path} lies in the data folder; say {remedy}")
        else:
            items.append(Item(entry=entry, path=data_dir / entry.path, stamps=stamps))
    return tuple(items)
