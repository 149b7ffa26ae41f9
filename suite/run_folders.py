"""Finds the run folders inside a plan's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def newest_attempts(folder: Path) -> Sequence[Path]:
    """The newest attempt of each repeat in a plan's folder, by repeat: r1, r2.2, …"""
    newest: dict[int, tuple[int, Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        head, _, tail = path.name.removeprefix("r").partition(".")
        if not (path.name.startswith("r") and head.isdecimal() and (tail.isdecimal() or not tail) and path.is_dir()):
            continue
        if len(head) > 9 or len(tail) > 9 or path.is_symlink():
            continue
        n, attempt = int(head), int(tail or 1)
        if n and attempt > newest.get(n, (0, path))[0]:
            newest[n] = (attempt, path)
    return [path for _, (_, path) in sorted(newest.items())]
