"""The files of a plan's folder by digest, so that whoever holds the folder can tell whether it is the one judged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from suite.events import is_plain_file
from suite.result import Artifact

WHOLE_BYTES = 64 << 20
"""A larger file is known by its head and tail: hashing checkpoints would take longer than training the small ones."""
END_BYTES = 1 << 20

WRITTEN_LATER = frozenset({"result.json"})
"""Made from this list, hence not on it."""


def artifacts(folder: Path) -> tuple[Artifact, ...]:
    """Every plain file below `folder`, sorted by path; links are left out, they may lead anywhere.

    Above WHOLE_BYTES the digest is that of the first and last END_BYTES, and says so: `head+tail:<sha256>`.
    """
    found = []
    for path in _files(folder):
        try:
            size = path.stat().st_size
            found.append(Artifact(path=path.relative_to(folder).as_posix(), bytes=size, sha256=file_digest(path)))
        except (OSError, ValueError):
            continue
    return tuple(sorted(found, key=lambda artifact: artifact.path))


def event_seals(run_dir: Path) -> dict[str, str]:
    """sha256 of every stream of a run, by file name: what the witness line of harness.jsonl keeps as `events`."""
    seals = {}
    for path in sorted((run_dir / "events").glob("*.jsonl")):
        if is_plain_file(path):
            with path.open("rb") as file:
                seals[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return seals


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder, followlinks=False):
        for name in names:
            path = Path(root) / name
            at_top = path.parent == folder
            if not name.startswith(".") and not (at_top and name in WRITTEN_LATER) and is_plain_file(path):
                yield path


def file_digest(path: Path) -> str:
    """sha256 of a file; of a large one, of its ends, and it says so. Raises OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(file.read(END_BYTES))
        file.seek(size - END_BYTES)
        digest.update(file.read(END_BYTES))
        return f"head+tail:{digest.hexdigest()}"
