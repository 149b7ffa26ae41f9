"""Scalars for TensorBoard: evaluations, training loss and metrics, a folder of events for each run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from reports.json_report import SessionReport
from reports.load import load
from suite.errors import UsageProblem
from suite.measure import measure
from suite.plan import Plan
from suite.result import Result, RunResult


def write_tensorboard(report: SessionReport, session: Path, output: Path) -> Sequence[Path]:
    """Write `<output>/<plan>/r<n>/events…` and return the folders. Raises UsageProblem without the extra, OSError."""
    try:
        writer_class = import_module("tensorboardX").SummaryWriter
    except ImportError:
        raise UsageProblem(
            "tensorboard: the package tensorboardX is not installed; install the extra `tensorboard`"
        ) from None
    written = []
    for result in report.results:
        for run in result.runs:
            folder = output / result.id / f"r{run.n}"
            writer = writer_class(str(folder))
            for tag, value, step in _scalars(result, run, session):
                writer.add_scalar(tag, value, step)
            writer.close()
            written.append(folder)
    return written


def _scalars(result: Result, run: RunResult, session: Path) -> list[tuple[str, float, int]]:
    """(tag, value, step); evaluations that are not finite are left out, as a chart cannot show them."""
    found = [
        (f"evaluation/{point.metric}", point.value, point.step)
        for point in run.curve
        if not isinstance(point.value, str)
    ]
    found += [("training/loss", loss, step) for step, loss in _losses(session / result.id, run.folder)]
    last = max((step for _, _, step in found), default=0)
    return found + [(f"metric/{name}", value, last) for name, value in run.metrics.items()]


def _losses(folder: Path, name: str) -> Sequence[tuple[int, float]]:
    """From the run's own folder, where it is still there: results do not hold the loss of every step."""
    if not (folder / "plan.json").is_file() or not (folder / name / "events").is_dir():
        return ()
    return measure(load(Plan, folder / "plan.json"), folder / name).losses
