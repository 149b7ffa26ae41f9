"""Executable surprises: what a folder of data may hold, looked at and never run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from suite.toml_file import shown
from tools.finding import Finding

MOST_FILES = 2000
LARGEST_BYTES = 1 << 20
"""Of one file in a vendor's folder, which is text."""
LONGEST_LINE = 1000

VENDOR_FILES = (
    "*.md", "vendor.toml", "LICENSE*", "*/LICENSE*", "machines/*.toml",
    "images/*/Dockerfile", "images/*/*_install.sh", "images/*/*.txt", "images/*/*.toml",
    "runtime/*/*.py", "runtime/*/environment_variables.sh", "runtime/*/requirements.txt",
    "*/*/config_*.toml", "*/*/environment_variables.sh", "*/*/requirements.txt", "*/*/extern/*.py", "*/*/csrc/*",
)  # fmt: skip
"""Globs (`*` crosses folders) of what docs/vendors.md gives a place; anything else has none."""

MAY_RUN = ("images/*_install.sh",)
"""Globs of what may carry the execute permission: it runs in a container of its own."""

PERSONAL = re.compile(r"/(?:home/\w+|root|Users/\w+)/")
OWNERS = re.compile(r"\b(?:all rights reserved|proprietary and confidential|GNU (?:Affero )?General Public)\b", re.I)
COPYRIGHT = re.compile(r"\bcopyright\b", re.IGNORECASE)
FREE = re.compile(
    r"SPDX-License-Identifier: *(?:Apache-2\.0|MIT|BSD-[23]-Clause)\b|Apache License,? Version 2\.0", re.I
)


def entries(folder: Path) -> Iterator[Path]:
    """Everything below `folder` but caches of Python, sorted, no link followed; at most MOST_FILES of it."""
    count = 0
    for here, folders, files in os.walk(folder, followlinks=False):
        links = [name for name in folders if Path(here, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in (*links, "__pycache__"))
        for name in sorted((*files, *links)):
            count += 1
            if count > MOST_FILES:
                return
            yield Path(here, name)


def check_shape(folder: Path, root: Path) -> Iterator[Finding]:
    """Links, special files, dangerous permissions: for a folder of any kind."""
    found = list(entries(folder))
    if len(found) >= MOST_FILES:
        yield Finding(shown(folder, root), f"more than {MOST_FILES} files", "a folder holds configuration, not data")
    for path in found:
        mode, label = path.lstat().st_mode, shown(path, root)
        if stat.S_ISLNK(mode):
            target = path.readlink()
            yield Finding(label, f"a symbolic link to {str(target)!r}", "put the file itself there, or remove the link")
        elif not stat.S_ISREG(mode):
            yield Finding(label, "neither a file nor a folder", "remove it: whoever opens it may wait for ever")
        elif mode & (stat.S_ISUID | stat.S_ISGID):
            yield Finding(label, "carries setuid or setgid", f"remove the bits: chmod ug-s {path.name}")
        elif mode & 0o111 and not _fits(path.relative_to(folder), MAY_RUN):
            yield Finding(label, "can be executed, and nothing here is", f"chmod -x {path.name}, or remove it")


def can_be_read(folder: Path, largest: int = LARGEST_BYTES) -> bool:
    """Whether reading on is safe: no link leads out, nothing waits or fills the memory when it is opened."""
    for count, path in enumerate(entries(folder), 1):
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest or count >= MOST_FILES:
            return False
    return True


def text_of(path: Path) -> str:
    """A file's text with its lines cut to LONGEST_LINE, so that no pattern takes long; empty where there is none."""
    if not path.is_file() or path.is_symlink():
        return ""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return "\n".join(line[:LONGEST_LINE] for line in text.splitlines())


def check_vendor_files(folder: Path, root: Path) -> Iterator[Finding]:
    """Every file has a place in docs/vendors.md, is text of a moderate size, and may be given on."""
    for path in plain_files(folder):
        label, below = shown(path, root), path.relative_to(folder)
        if not _fits(below, VENDOR_FILES) or any(part.startswith(".") for part in below.parts):
            yield _without_place(below, label)
        if path.stat().st_size > LARGEST_BYTES:
            yield Finding(label, f"holds more than {LARGEST_BYTES:,} bytes", "a vendor's folder is text; remove it")
            continue
        raw = path.read_bytes()
        text = raw.decode("utf-8", errors="ignore")
        if b"\0" in raw or text.encode("utf-8") != raw:
            yield Finding(label, "is a binary file", "give the source instead: extensions are built from csrc/")
            continue
        yield from check_words(path, text_of(path), label, folder)


def _without_place(below: Path, label: str) -> Finding:
    remedy = "remove it, or move it: docs/vendors.md lists every file of a vendor's folder"
    if below.suffix in (".py", ".so", ".pyc"):
        remedy = "vendor code has its place in extern/, csrc/ and runtime/<framework>/; move it there, or remove it"
    elif below.suffix in (".sh", ".bash"):
        remedy = "nothing runs it; variables belong into environment_variables.sh, set-up into images/; remove it"
    return Finding(label, "a file that has no place in a vendor's folder", remedy)


def check_words(path: Path, text: str, label: str, folder: Path) -> Iterator[Finding]:
    """Whose text it is, and whose machine it names."""
    if found := PERSONAL.search(text):
        yield Finding(label, f"names a folder of one person's machine, {found[0]!r}", "write a path that others have")
    if path.suffix == ".md" or path.name.startswith("LICENSE"):
        return
    if OWNERS.search(text):
        yield Finding(label, "its licence does not allow it here", "only code that may be given on under Apache-2.0")
    elif COPYRIGHT.search(text) and not FREE.search(text) and not any_licence(path, folder):
        yield Finding(label, "names a copyright and no licence", "add an SPDX-License-Identifier line, or its LICENSE")


def any_licence(path: Path, folder: Path) -> bool:
    """Whether a LICENSE lies beside the file, or in a folder between it and `folder`."""
    parents = [parent for parent in path.parents if parent == folder or folder in parent.parents]
    return any(next(parent.glob("LICENSE*"), None) is not None for parent in parents)


def plain_files(folder: Path) -> Iterator[Path]:
    """The regular files below `folder`, no link among them."""
    return (path for path in entries(folder) if stat.S_ISREG(path.lstat().st_mode))


def _fits(below: Path, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(below.as_posix(), glob) for glob in globs)
