"""One side of a comparison: the figures in a session, a plan's folder, a baseline, or a folder of baselines."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reports.json_report import read_session
from reports.load import load
from reports.places import is_session
from suite.baseline_file import baseline_files, read_baseline
from suite.errors import UsageProblem
from suite.figures import Figures, figures_of
from suite.result import Result


class Side(NamedTuple):
    """What is compared, and what to call it."""

    name: str
    figures: tuple[Figures, ...]


def read_side(path: Path) -> Side:
    """The figures that `path` names. Raises UsageProblem where it names none."""
    if path.is_dir() and is_session(path):
        figures = tuple(figures_of(result) for result in read_session(path).results)
    elif path.is_dir():
        figures = _of_folder(path)
    elif path.name == "session.json":
        figures = tuple(figures_of(result) for result in read_session(path.parent).results)
    elif path.suffix == ".json":
        figures = (figures_of(load(Result, path)),)
    elif path.is_file():
        figures = (read_baseline(path),)
    else:
        raise UsageProblem(f"{path}: no such file or folder; {_REMEDY}")
    if not figures:
        raise UsageProblem(f"{path}: holds no result and no baseline; {_REMEDY}")
    return Side(str(path), figures)


def _of_folder(path: Path) -> tuple[Figures, ...]:
    if (path / "result.json").is_file():
        return (figures_of(load(Result, path / "result.json")),)
    return tuple(read_baseline(file) for file in baseline_files(path))


_REMEDY = "name a session, a plan's folder, a result.json, a baseline, or a folder of baselines"
