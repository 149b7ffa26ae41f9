"""Where proofs of replaced parts are written down."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from suite.slots import Proof, Proofs
from suite.toml_file import read_table


def require_writable(path: Path) -> None:
    """What `keep` would stumble over, told before anything is measured. Raises UsageProblem, OSError."""
    if path.exists():
        read_table(path, Proofs, path.as_posix())
    place = next(folder for folder in path.absolute().parents if folder.exists())
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "cannot be written to", str(place))


def keep(made: Sequence[Proof], path: Path) -> Iterator[str]:
    """Add the proofs to the file at `path`, and say what became of each. Raises UsageProblem, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        before = read_table(path, Proofs, path.as_posix()).proof if path.exists() else ()
        known = {(proof.where, proof.slot, proof.digest) for proof in before}
        fresh = [proof for proof in made if (proof.where, proof.slot, proof.digest) not in known]
        text = path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else ""
        if fresh:
            _replace(path, "\n\n".join(part for part in (text, *map(_toml, fresh)) if part) + "\n")
    for proof in made:
        word = "written" if proof in fresh else "there already"
        yield f"{path}: {proof.where}, slot {proof.slot}: {word}; it is reviewed like code"


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One writer at a time: of two that read the same file, the second would write the first one's proof away."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _toml(proof: Proof) -> str:
    fields = proof.model_dump().items()
    return "\n".join(
        ["[[proof]]", *(f"{name} = {json.dumps(str(value), ensure_ascii=False)}" for name, value in fields)]
    )


def _replace(path: Path, text: str) -> None:
    """The whole file at once: nobody reads half of it. Raises OSError about `path`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from None
    finally:
        partial.unlink(missing_ok=True)
