"""Telling session, plan and run folders apart, so that a command takes whichever a person has at hand."""

from __future__ import annotations

from pathlib import Path

from suite.errors import UsageProblem
from suite.schema_version import check_file

LATEST = Path("results") / "latest"


def is_text(name: str) -> bool:
    """A report can hold the name: it is UTF-8, which a file system does not ask for."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def existing_folder(path: Path) -> Path:
    """`path`, or the folder of a file named in it. Raises UsageProblem where there is none."""
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise UsageProblem(f"{path}: no such folder; name a session, plan or run folder, as in {LATEST}")
    return folder


def is_session(folder: Path) -> bool:
    """`folder` holds what a session writes."""
    return (folder / "session.json").exists() or any(folder.glob("journal-*.jsonl"))


def session_folder(path: Path) -> Path:
    """The session folder that `path` names. Raises UsageProblem for anything else."""
    folder = existing_folder(path)
    if not is_session(folder):
        raise UsageProblem(
            f"{path}: no session folder, it holds neither session.json nor journals; name one, as in {LATEST}"
        )
    return folder


def plan_folders(path: Path) -> tuple[Path, ...]:
    """The plan folders that `path` names: all of a session, itself, or the one that a run belongs to.

    Raises UsageProblem, also for a session that a later version wrote, whatever else can be read in it.
    """
    folder = existing_folder(path)
    if is_session(folder):
        check_file(folder / "session.json")
        folders = tuple(sorted(plan.parent for plan in folder.glob("*/plan.json") if is_text(plan.parent.name)))
        if not folders:
            raise UsageProblem(f"{path}: no plan of this session has started, so there is nothing to judge")
        return folders
    return (_plan_folder(folder, path),)


def _plan_folder(folder: Path, path: Path) -> Path:
    # A run of the base (base/r1) counts in the verdict of the plan that it is the base of.
    if folder.name == "base" or folder.parent.name == "base":
        above = folder.resolve().parent if folder.name == "base" else folder.resolve().parent.parent
        if (above / "plan.json").exists():
            return above
    for candidate in (folder, folder.resolve().parent):
        if (candidate / "plan.json").exists():
            return candidate
    raise UsageProblem(f"{path}: neither a session, a plan nor a run folder (no session.json, journal or plan.json)")
