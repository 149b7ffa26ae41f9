"""`python -m tools check [PATH]`: what a reviewer would say of a case or a vendor. Executes nothing of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from suite.errors import UsageProblem
from suite.toml_file import shown
from tools.check_case import check_case
from tools.check_vendor import check_vendor
from tools.finding import Finding

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_arguments(commands: Commands) -> None:
    """The arguments of `check`."""
    check = commands.add_parser("check", help="lint a case's or a vendor's folder, as a reviewer would")
    check.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="a case's or a vendor's folder, anything inside one, or a folder of several (default: all of the suite)",
    )
    check.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace, root: Path) -> int:
    """Print every finding; 0: none, 1: some."""
    given: list[Path] = arguments.paths or [root / "suite/cases", root / "suite/vendors"]
    folders = sorted({folder for path in given for folder in folders_of(path)})
    findings = [finding for folder in folders for finding in check_folder(folder, root)]
    for finding in findings:
        print(finding)
    names = ", ".join(shown(folder, root) for folder in folders) if len(folders) < 4 else f"{len(folders)} folders"
    print(f"{names}: {len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}")
    return 1 if findings else 0


def check_folder(folder: Path, root: Path) -> list[Finding]:
    """The findings of one case's or vendor's folder."""
    try:
        return check_case(folder, root) if (folder / "case.toml").is_file() else check_vendor(folder, root)
    except OSError as problem:
        label = shown(Path(str(problem.filename or folder)), root)
        return [Finding(label, f"cannot be read: {problem.strerror}", "let everyone read it, or remove it")]


def folders_of(path: Path) -> list[Path]:
    """The case's and vendor's folders that `path` means. Raises UsageProblem where there is none."""
    # The last part stays as it is: a link in the place of a folder is a finding, not a way to another one.
    place = path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
    if place.is_symlink() or not place.exists():
        what = "a link" if place.is_symlink() else "no such file or folder"
        raise UsageProblem(f"{path}: {what}; name the folder of a case or a vendor")
    for folder in (place, *place.parents):
        if (folder / "case.toml").is_file() or (folder / "vendor.toml").is_file() or folder.parent.name == "vendors":
            return [folder]
    found = {toml.parent for glob in ("case.toml", "vendor.toml") for toml in place.rglob(glob)}
    if place.name == "vendors" and place.is_dir():
        found |= {folder for folder in place.iterdir() if folder.is_dir() and folder.name[0] not in "._"}
    if not found:
        raise UsageProblem(
            f"{path}: holds neither a case.toml nor a vendor.toml; name the folder of a case or a vendor"
        )
    return sorted(found)
