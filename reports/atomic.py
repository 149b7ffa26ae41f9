"""Writing a whole file at once: a reader, and a crash, see the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` atomically and durably. Raises OSError; `path` is then as it was, with nothing beside it."""
    # The process id keeps two writers of one file (a session and a `rebuild`) out of each other's half.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
