"""Copies the data of a case to a local disk, under a name made of its content."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from suite.errors import UsageProblem
from tools.data_digest import STAMPS, sha256_of, size_of
from tools.data_set import DataSet, Item


def stage(data: DataSet, destination: Path) -> tuple[Path, bool]:
    """(folder, copied): the folder below `destination` holding this very content; copied now, or there already.

    Whoever finds the folder finds all of it: it takes its name only when complete and checked.
    """
    items = [item for item in data.items if item.stamps is not None and item.present]
    digests = {item.entry.path: item.digest() for item in items}
    folder = destination / f"{data.case.replace('/', '-')}-{content_name(digests)}"
    if folder.is_dir():
        return folder, False
    partial = destination / f".{folder.name}.{os.getpid()}.partial"
    try:
        destination.mkdir(parents=True, exist_ok=True)
        _check_space(items, destination)
        _copy(items, digests, partial)
        return _publish(partial, folder)
    except OSError as problem:
        raise UsageProblem(
            f"{destination}: staging failed: {problem.strerror or problem}; choose another --to"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def content_name(digests: dict[str, str]) -> str:
    """Sixteen hex digits that stand for these paths with this content."""
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _check_space(items: Sequence[Item], destination: Path) -> None:
    """Fail before the first byte rather than at the last."""
    needed, free = sum(size_of(item.path) for item in items), shutil.disk_usage(destination).free
    if needed > free:
        raise UsageProblem(f"{destination}: {needed:,} bytes to stage, {free:,} free; choose another --to")


def _copy(items: Sequence[Item], digests: dict[str, str], partial: Path) -> None:
    """Copy everything below `partial` and hash the copies: a disk that lies is found here, not in training."""
    for item in items:
        target = partial / item.entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.path.is_dir():
            shutil.copytree(item.path, target, ignore=shutil.ignore_patterns("*.partial", STAMPS), dirs_exist_ok=True)
        else:
            shutil.copy2(item.path, target)
        if sha256_of(target) != digests[item.entry.path]:
            raise UsageProblem(
                f"{item.path}: its copy in {partial.parent} differs from it; the source changed "
                "meanwhile, or the disk is faulty"
            )


def _publish(partial: Path, folder: Path) -> tuple[Path, bool]:
    """Give the copy its name; somebody else may have been faster with the same content."""
    try:
        partial.rename(folder)
    except OSError:
        if folder.is_dir():
            return folder, False
        raise
    return folder, True
