"""SHA-256 of data: of a file, and of a folder as a tree; with a stamp, so that unchanged data is hashed once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = 1 << 20
STAMPS = ".trainmark-digests.json"
"""Lies in the data folder: path -> the fingerprint that was hashed, and its digest."""


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files below `folder`, sorted by their path as text; our own stamps and partial files left out."""
    found = []
    for parent, _, names in os.walk(folder):
        found += [Path(parent, name) for name in names if name != STAMPS and not name.endswith(".partial")]
    yield from sorted((path for path in found if path.is_file()), key=lambda path: path.relative_to(folder).as_posix())


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(item.stat().st_size for item in files_below(path)) if path.is_dir() else path.stat().st_size


def sha256_of(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of the lines `<sha256>  <relative path>` of its files in sorted order."""
    if not path.is_dir():
        return _sha256_of_file(path)
    tree = hashlib.sha256()
    for item in files_below(path):
        tree.update(f"{_sha256_of_file(item)}  {item.relative_to(path).as_posix()}\n".encode())
    return tree.hexdigest()


def _sha256_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(path: Path) -> str:
    """Changes whenever size or modification time of the file, or of any file of the folder, does."""
    items = files_below(path) if path.is_dir() else iter([path])
    marks = hashlib.sha256()
    for item in items:
        status = item.stat()
        marks.update(f"{item.relative_to(path).as_posix()} {status.st_size} {status.st_mtime_ns}\n".encode())
    return marks.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamps:
    """Digests that were computed before, kept in the data folder they belong to."""

    folder: Path

    def known(self, path: Path) -> str:
        """The digest of `path`, if it has not changed since it was computed; else empty."""
        stamp = self._read().get(path.relative_to(self.folder).as_posix())
        if not isinstance(stamp, dict) or stamp.get("fingerprint") != fingerprint(path):
            return ""
        return str(stamp.get("sha256", ""))

    def digest(self, path: Path) -> str:
        """The digest of `path`, computed only if the stamp is missing or stale."""
        known = self.known(path)
        if known:
            return known
        # Taken before hashing: a file that changes meanwhile must not look verified.
        before = fingerprint(path)
        digest = sha256_of(path)
        self._write(path.relative_to(self.folder).as_posix(), {"fingerprint": before, "sha256": digest})
        return digest

    def _read(self) -> dict[str, object]:
        """All stamps; none where the file is missing or damaged, for they can be computed again."""
        try:
            stamps = json.loads((self.folder / STAMPS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def _write(self, key: str, stamp: dict[str, str]) -> None:
        """Remember one; a read-only data folder is hashed again next time."""
        partial = self.folder / f"{STAMPS}.{os.getpid()}.partial"
        try:
            partial.write_text(json.dumps(self._read() | {key: stamp}, indent=1, sort_keys=True), encoding="utf-8")
            partial.replace(self.folder / STAMPS)
        except OSError:
            partial.unlink(missing_ok=True)
