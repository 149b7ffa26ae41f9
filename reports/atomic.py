"""Writing a whole file at once: a reader, and a crash, see the old one or the new one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` atomically and durably. Raises OSError; `path` is then as it was, with nothing beside it."""
    # The process id keeps two writers of one file (a session and a `rebuild`) out of each other's half.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with named(path):
        _replace(path, partial, data)


def refuse_device(path: Path) -> None:
    """Raise OSError where `path`, given by a user, is a device or a link to one: a file would take its place."""
    target = str(path.readlink()) if path.is_symlink() else ""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if target.startswith("/proc/") or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "a device, no file to be replaced; name a file, or leave the option out", str(path))


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError within is about `path`, the name that its reader knows, not about a partial file beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def _replace(path: Path, partial: Path, data: bytes) -> None:
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
