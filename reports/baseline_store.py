"""Baselines on disk: proposed from results, approved by a person, ended with a reason; each one file to review."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from reports.atomic import replace_file
from reports.escape import one_line, visible
from reports.json_report import read_session
from reports.load import load
from reports.places import is_session
from reports.statistics import smallest_p
from suite.baseline_file import Baseline, State, baseline_files, read_baseline
from suite.errors import UsageProblem
from suite.figures import Figures, figures_of
from suite.result import Result

MEASURED = ("passed", "inconclusive: no_threshold")
"""Outcomes whose numbers are good; without a declared threshold nothing was promised, and nothing broken."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class Proposed(NamedTuple):
    """What was written, and a sentence for each result that was not, or is of little use."""

    written: tuple[Path, ...]
    remarks: tuple[str, ...]


def propose(path: Path, folder: Path, *, today: str, reason: str = "") -> Proposed:
    """Write the good results in `path` as proposed baselines below `folder`. Raises UsageProblem, OSError."""
    source, results = _results(path)
    written, remarks = [], []
    for result in results:
        figures = figures_of(result)
        why = _unfit(figures)
        if why:
            remarks.append(f"{result.id}: left out: {why}")
            continue
        baseline = baseline_from(figures, source=source, today=today, reason=reason)
        written.append(keep(baseline, folder))
        runs = max(len(metric.values) for metric in baseline.metric.values())
        if smallest_p(runs, runs) >= 0.05:
            remarks.append(f"{result.id}: proposed, but {runs} runs can never show a regression; 5 or more can")
    return Proposed(tuple(written), tuple(remarks))


def baseline_from(figures: Figures, *, source: str, today: str, reason: str = "") -> Baseline:
    """The figures as a proposed baseline."""
    fields = figures.model_dump()
    return Baseline.model_validate(
        {**fields, "state": "proposed", "proposed": today, "source": source, "reason": reason}
    )


def keep(baseline: Baseline, folder: Path) -> Path:
    """Write `baseline` into a file below `folder`, over an equal proposal only. Raises UsageProblem, OSError."""
    name = f"{baseline.id}-{baseline.fingerprint[:12]}-{baseline.source.split()[0]}.toml"
    for part in (baseline.vendor, name):
        if not _NAME.fullmatch(part):
            raise UsageProblem(f"{part!r}: no name for a baseline; an id holds letters, digits, `_`, `.`, `+`, `-`")
    path = folder / baseline.vendor / name
    if path.exists() and read_baseline(path).state != "proposed":
        raise UsageProblem(f"{path}: {read_baseline(path).state} already; propose another session, or delete the file")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(baseline, path)
    return path


def approve(path: Path, *, by: str, today: str, expires: str = "") -> Iterator[str]:
    """Approve the proposal in `path`; an approved baseline of the same plan and environment expires. Says both."""
    baseline = read_baseline(path)
    if baseline.state != "proposed":
        raise UsageProblem(f"{path}: its state is {baseline.state!r}; only a proposed baseline is approved")
    if not by.strip():
        raise UsageProblem("--by '': name the reviewer who answers for the baseline")
    _check_day(expires, today)
    for other_path in baseline_files(path.parent):
        other = read_baseline(other_path)
        same = (other.task, other.place, other.fingerprint) == (baseline.task, baseline.place, baseline.fingerprint)
        if other.state == "approved" and same:
            end(other_path, "expired", f"replaced by {path.name}")
            yield f"expired: {other_path}"
    fields = {"state": "approved", "approved": today, "approved_by": one_line(by), "expires": expires}
    write(Baseline.model_validate({**baseline.model_dump(), **fields}), path)
    yield f"approved: {path}"


def end(path: Path, state: State, reason: str) -> None:
    """Let the baseline in `path` gate no longer. Raises UsageProblem for an empty reason."""
    if not reason.strip():
        raise UsageProblem(f"{path}: --reason '' explains nothing; say why it is {state}")
    fields = {**read_baseline(path).model_dump(), "state": state, "reason": one_line(reason)}
    write(Baseline.model_validate(fields), path)


def listing(path: Path, today: str) -> str:
    """A table of the baselines below `path`, the standing of each on `today`. Raises UsageProblem."""
    from tabulate import tabulate

    if not path.exists():
        raise UsageProblem(f"{path}: no such file or folder; propose one with `python -m reports baseline propose`")
    rows = []
    for file in baseline_files(path):
        one = read_baseline(file)
        name, metric = next(iter(one.metric.items()))
        shown = f"{name} {metric.value:.5g} {metric.unit} (n {len(metric.values)})"
        who = f"{one.approved_by} {one.approved}".strip()
        rows.append((one.id, one.standing(today), shown, one.fingerprint[:12], who, one.expires, one_line(one.reason)))
    if not rows:
        return f"{path}: no baseline yet"
    headers = ("plan", "state", "first metric", "fingerprint", "approved", "expires", "reason")
    return str(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True))


def write(baseline: Baseline, path: Path) -> None:
    """Put `baseline` at `path` as TOML that a person can review. Raises OSError."""
    replace_file(path, _toml(baseline).encode("utf-8"))


def _toml(baseline: Baseline) -> str:
    fields = baseline.model_dump(mode="json")
    environment, metrics = fields.pop("environment"), fields.pop("metric")
    # The words that are reviewed stand at the top.
    first = ("state", "reason", "proposed", "approved", "approved_by", "expires", "source")
    lines = [f"{name} = {_value(fields.pop(name))}" for name in first]
    lines += ["", *(f"{name} = {_value(value)}" for name, value in fields.items())]
    lines += ["", "[environment]", *(f"{_value(name)} = {_value(value)}" for name, value in environment.items())]
    for name, metric in metrics.items():
        lines += ["", f"[metric.{_value(name)}]", *(f"{key} = {_value(value)}" for key, value in metric.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Text, number or list as TOML writes it; JSON's strings are TOML's, once the control characters are spelt out."""
    return json.dumps(visible(value) if isinstance(value, str) else value, ensure_ascii=False)


def _results(path: Path) -> tuple[str, tuple[Result, ...]]:
    """The session's id, and the results that `path` names."""
    if path.is_dir() and is_session(path):
        report = read_session(path)
        return report.session.id, report.results
    file = path / "result.json" if path.is_dir() else path
    session = file.resolve().parent.parent
    source = read_session(session).session.id if (session / "session.json").is_file() else session.name
    return source, (load(Result, file),)


def _unfit(figures: Figures) -> str:
    """Why a result is no baseline; empty: it is one."""
    if figures.outcome not in MEASURED:
        return figures.outcome
    if figures.division == "open" or figures.evidence == "log":
        return "division open or evidence log: it could never gate"
    return "" if figures.metric and figures.fingerprint else "it holds no number"


def _check_day(text: str, today: str) -> None:
    try:
        if text and date.fromisoformat(text).isoformat() <= today:
            raise UsageProblem(f"--expires {text}: not after today, {today}; name a later day")
    except ValueError:
        raise UsageProblem(f"--expires {text}: not a day; write it as {today}") from None
