"""Opens a bundle that anybody may have made: plain files below one folder, within bounds, or one sentence."""

from __future__ import annotations

import errno
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from suite.errors import UsageProblem
from suite.harness_log import read_harness

MAX_ARCHIVE = 4 << 30
MAX_TOTAL = 16 << 30
MAX_MEMBERS = 50_000
MAX_NAME = 400
MAX_RATIO = 200
"""Bytes that come out for each that lies in the archive; event streams reach 40, a bomb a thousand."""
FREE = 64 << 20
"""So many come out whatever the ratio."""
CHUNK = 1 << 20

DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error, struct.error)
"""What the archive module raises for bytes that are not what they should be."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The session in the bundle `path`, in a folder that is gone afterwards. Raises UsageProblem."""
    with tempfile.TemporaryDirectory(prefix="trainmark-bundle-") as folder:
        target = Path(folder).resolve() / path.stem
        target.mkdir()
        try:
            _extract(path, target)
        except DAMAGE as problem:
            raise _refused(path, f"it is no sound archive ({problem})") from None
        except OSError as problem:
            # An offset that points nowhere; a full disk is another matter, and not the bundle's fault.
            if problem.errno != errno.EINVAL:
                raise
            raise _refused(path, "it is no sound archive (an offset in it leads nowhere)") from None
        _check_bases(path, target)
        yield target


def _check_bases(path: Path, target: Path) -> None:
    """Raise UsageProblem where a plan would be measured against a folder outside of the bundle."""
    for log in target.glob("*/harness.jsonl"):
        base = read_harness(log.parent).base
        place = base.get("folder") if base else None
        if place is not None and place != "base":
            raise _refused(path, f"{log.parent.name} names the base {str(place)[:80]!r}, which is not in it")


def _refused(path: Path, why: str) -> UsageProblem:
    return UsageProblem(f"{path}: {why}; nothing of it was used, ask for a bundle made by `python -m reports bundle`")


def _extract(path: Path, target: Path) -> None:
    size = path.stat().st_size
    if size > MAX_ARCHIVE:
        raise _refused(path, f"it has {size} bytes, more than {MAX_ARCHIVE}")
    left = min(MAX_TOTAL, FREE + size * MAX_RATIO)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise _refused(path, f"it has {len(members)} members, more than {MAX_MEMBERS}")
        seen: set[str] = set()
        for member in members:
            name = _safe_name(path, member)
            if name in seen:
                raise _refused(path, f"{name[:80]!r} stands in it twice")
            seen.add(name)
            if not member.is_dir():
                left = _copy(path, archive, member, target / name, left)


def _safe_name(path: Path, member: zipfile.ZipInfo) -> str:
    """The member's name, relative and without tricks. Raises UsageProblem."""
    name = member.filename
    parts = PurePosixPath(name).parts
    mode = member.external_attr >> 16
    plain = all(character.isprintable() for character in name) and "\\" not in name and ":" not in name
    if not plain or not parts or name.startswith("/") or ".." in parts or len(name) > MAX_NAME:
        raise _refused(path, f"a member is called {name[:80]!r}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refused(path, f"{name[:80]!r} is packed by a method that bundles never use")
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
        raise _refused(path, f"{name[:80]!r} is neither a file nor a folder")
    return PurePosixPath(*parts).as_posix()


def _copy(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write the member, counting what really comes out; returns what may still come."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise _refused(path, f"{member.filename[:80]!r} is a file and a folder") from None
    with os.fdopen(descriptor, "wb") as file, archive.open(member) as source:
        while chunk := source.read(CHUNK):
            left -= len(chunk)
            if left < 0:
                raise _refused(path, "more comes out of it than any session holds")
            file.write(chunk)
    return left
