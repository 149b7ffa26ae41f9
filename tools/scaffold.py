"""Writes skeletons: names that can be names, templates filled in, all files of one or none, and never over another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from suite.errors import UsageProblem
from suite.toml_file import shown

TEMPLATES = Path(__file__).resolve().parent / "templates"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
PLACE = re.compile(r"%([A-Z]+)%")


def check_name(what: str, name: str, taken: tuple[str, ...] = ()) -> str:
    """The name, if a folder may be called so. Raises UsageProblem."""
    if not NAME.fullmatch(name):
        raise UsageProblem(f"{what} {name!r}: no name for a folder; use letters, digits, `_`, `.`, `+`, `-`")
    if name in taken:
        raise UsageProblem(f"{what} {name!r}: the word has a meaning of its own there; choose another")
    return name


def filled(template: str, **words: str) -> str:
    """The template with its places filled: `%MODEL%` by `model`."""
    text = (TEMPLATES / f"{template}.in").read_text(encoding="utf-8")
    return PLACE.sub(lambda found: words.get(found[1].lower(), found[0]), text)


def write_new(files: Mapping[Path, str], root: Path) -> None:
    """Write all files, none of which exists yet, and say so. Raises UsageProblem, having written nothing."""
    for path in files:
        if path.exists() or path.is_symlink():
            raise UsageProblem(f"{shown(path, root)}: exists already, and is left alone; choose another name")
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
            if path.name.endswith("_install.sh"):
                path.chmod(0o755)
    except OSError as problem:
        for done in written:
            done.unlink()
        raise UsageProblem(
            f"{shown(path, root)}: cannot be written: {problem.strerror}; see that its folder can be"
        ) from None
    for path in files:
        print(f"wrote {shown(path, root)}")


def python_name(name: str) -> str:
    """The name as a part of a Python identifier."""
    return re.sub(r"\W", "_", name)
