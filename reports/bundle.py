"""A session as one file that somebody else can judge again: everything a verdict rests on, and nothing besides."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reports.atomic import named, refuse_device
from reports.json_report import SessionReport, read_session, write_result, write_session
from reports.places import is_text
from reports.redact import Redactor
from reports.rejudge import rests
from suite.artifacts import event_seals
from suite.errors import UsageProblem
from suite.events import is_plain_file
from suite.result import Result
from suite.rounding import alike
from suite.verdict import judge_folder

MANIFEST = "bundle.json"
SCHEMA = 1
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every member: the same session makes the same bytes."""


class Packed(NamedTuple):
    """What was written."""

    path: Path
    sha256: str
    plans: int
    left_out: tuple[str, ...]
    """Sentences."""


def pack(
    session: Path, output: Path, *, public: bool = False, checkpoints: bool = False, baselines: Sequence[Path] = ()
) -> Packed:
    """Write the bundle of `session` to `output`. Raises UsageProblem, OSError.

    Every plan is judged again from exactly what is packed, and must come out as it is stored: a bundle whose verdict
    cannot be had from it is not made.
    """
    report = read_session(session)
    if report.session.exit_status is None:
        raise UsageProblem(f"{session}: the session has not ended; `python -m reports rebuild` it, or wait for it")
    with tempfile.TemporaryDirectory(prefix="trainmark-bundle-") as folder:
        staged = Path(folder) / "session"
        plans = sorted(path.parent for path in session.glob("*/plan.json") if is_text(path.parent.name))
        for plan in plans:
            _stage_plan(plan, staged / plan.name, checkpoints=checkpoints, logs=not public)
        redactor = _redact(staged, report) if public else None
        for result in report.results:
            _settle(result, staged / result.id, redactor)
        again = {plan.name: judge_folder(staged / plan.name, baselines=baselines) for plan in plans}
        results = [_agreed(result, again.get(result.id), redactor) for result in report.results]
        for result in results:
            if result.id in again:
                write_result(result, staged / result.id)
        staged.mkdir(exist_ok=True)
        write_session(_session(report, results, redactor), staged)
        left_out = (*_left_out(public=public, checkpoints=checkpoints), *_nameless(session))
        manifest = {"schema": SCHEMA, "session": report.session.id, "public": public, "left_out": left_out}
        (staged / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        _zip(staged, output)
    return Packed(output, _sha256(output), len(plans), left_out)


def _left_out(*, public: bool, checkpoints: bool) -> Iterator[str]:
    yield "journals, junit.xml and report/: they are made from what is here"
    if not checkpoints:
        yield "checkpoints: --checkpoints packs them, for an evaluation of the model's quality by others"
    if public:
        yield "logs and the last lines of logs"
        yield "names of hosts, users and processes, serials, addresses, facts of the CI server"


def _nameless(session: Path) -> Iterator[str]:
    """Of what no archive could name: a run may call its files what it likes."""
    count = sum(not is_text(path.name) for path in session.rglob("*"))
    if count:
        yield f"{count} files or folders whose names are not UTF-8"


def _stage_plan(plan: Path, target: Path, *, checkpoints: bool, logs: bool) -> None:
    """Copy the plan's files, and those of a base that was measured in another session."""
    _copy(plan, target, checkpoints=checkpoints, logs=logs)
    log = target / "harness.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    for number, line in enumerate(lines):
        event = _object(line)
        place = event.get("folder")
        if event.get("event") == "base" and isinstance(place, str) and Path(place).is_absolute():
            _copy(Path(place), target / "base", checkpoints=checkpoints, logs=logs, base=True)
            lines[number] = json.dumps({**event, "folder": "base"})
    if lines:
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _object(line: str) -> dict[str, object]:
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _copy(source: Path, target: Path, *, checkpoints: bool, logs: bool, base: bool = False) -> None:
    """Plain files below `source`, links and hidden ones left out; of a base's own plan no base again."""
    if not (source / "plan.json").is_file():
        raise UsageProblem(f"{source}: the base was measured there, and is gone; measure the session again")
    unwanted = {"result.json"} | (set() if checkpoints else {"checkpoints"}) | (set() if logs else {"logs"})
    unwanted |= {"base"} if base else set()
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") for part in parts)
        if is_plain_file(path) and is_text(path.name) and not unwanted & set(parts) and not hidden:
            to = target.joinpath(*parts)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)


def _redact(staged: Path, report: SessionReport) -> Redactor:
    """Take the names out of every staged file; a stream that the harness had sealed is sealed anew."""
    names = ("vendor", "machine", "model", "framework", "preset")
    redactor = Redactor(str(getattr(result, name)) for result in report.results for name in names)
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    for path in files:
        if path.suffix in (".json", ".jsonl") and path.name != "plan.json":
            text = path.read_text(encoding="utf-8", errors="replace")
            for line in text.split("\n") if path.suffix == ".jsonl" else [text]:
                redactor.learn(_object(line))
    runs = sorted({path.parent.parent for path in staged.rglob("events/*.jsonl")})
    before = {run: event_seals(run) for run in runs}
    for path in files:
        redactor.file(path)
    for run in runs:
        _seal(run, before[run])
    return redactor


def _seal(run: Path, before: dict[str, str]) -> None:
    """A seal that held holds again; one that was broken stays broken."""
    log, now = run / "harness.jsonl", event_seals(run)
    if not log.is_file():
        return
    lines = log.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        event = _object(line)
        seals = event.get("events")
        if event.get("event") == "witness" and isinstance(seals, dict):
            held = {name: now.get(name, seal) if before.get(name) == seal else seal for name, seal in seals.items()}
            lines[number] = json.dumps({**event, "events": held}, separators=(",", ":"))
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _settle(stored: Result, plan: Path, redactor: Redactor | None) -> None:
    """Nobody judged this plan, and the session alone says how it ended: its folder shall say so too."""
    if stored.comparability_key or not plan.is_dir():
        return
    outcome = stored.outcome.model_dump(mode="json")
    line = {"event": "settled", "t": 0.0, "t_wall": 0.0, "outcome": redactor.value(outcome) if redactor else outcome}
    with (plan / "harness.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def _agreed(stored: Result, again: Result | None, redactor: Redactor | None) -> Result:
    """The verdict on what is packed, where it is that of the session. Raises UsageProblem for any other."""
    if again is None:
        # It never started: there is no folder, and there are no numbers.
        clean = redactor.value(stored.model_dump(mode="json")) if redactor else stored.model_dump(mode="json")
        return Result.model_validate(clean)
    for what, before, after in (
        ("outcome", (stored.outcome.status, stored.outcome.category), (again.outcome.status, again.outcome.category)),
        ("checks", _checks(stored), _checks(again)),
        ("metrics", stored.metrics, again.metrics),
    ):
        # Of a plan that nobody judged, only how it ended is stored.
        if not alike(before, after, rests(again)) and (stored.comparability_key or what == "outcome"):
            raise UsageProblem(
                f"{stored.id}: its {what} cannot be had from what the bundle would hold; `python -m reports rejudge`"
                " the session, and name what it was judged against with --baseline"
            )
    return again


def _checks(result: Result) -> list[tuple[str, str, dict[str, object]]]:
    return [(check.name, check.status, {check.metric: check.value}) for check in result.checks]


def _session(report: SessionReport, results: Sequence[Result], redactor: Redactor | None) -> SessionReport:
    session = report.session
    if redactor is not None:
        session = session.model_copy(update={"ci": {}, "command": redactor.text(session.command)})
    return report.model_copy(update={"session": session, "results": tuple(results)})


def _zip(staged: Path, output: Path) -> None:
    partial = output.with_name(f".{output.name}.partial")
    refuse_device(output)
    try:
        with named(output), zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(path for path in staged.rglob("*") if path.is_file()):
                member = zipfile.ZipInfo(path.relative_to(staged).as_posix(), EPOCH)
                member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
                with path.open("rb") as source, archive.open(member, "w", force_zip64=True) as file:
                    shutil.copyfileobj(source, file, 1 << 20)
        with named(output):
            partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
