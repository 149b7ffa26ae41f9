"""From journals and result.json files to one report: every selected plan appears, whatever became of its process."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from reports.journal import Entry, read_journals
from reports.json_report import Git, SessionFacts, SessionReport
from reports.load import load, parsed
from reports.lost import lost_result
from reports.places import is_text
from reports.records import (
    AttemptRecord,
    InterruptRecord,
    OutcomeRecord,
    PlanRecord,
    SelectedRecord,
    SessionRecord,
    VerdictRecord,
    WorkerRecord,
)
from suite.errors import UsageProblem
from suite.outcome import Outcome
from suite.plan import Plan
from suite.result import Result

CONTROLLER = "main"
"""Name of the process that is no worker."""

LoadResult = Callable[[Path], Result]


class Gathered(NamedTuple):
    """The report, a sentence for each thing that is missing from it, and one for each that never was part of it."""

    report: SessionReport
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass
class _State:
    """What the journals say of one plan, so far."""

    id: str
    plan: object = None
    folder: str = ""
    worker: str = ""
    """The process that started it; empty: nobody did."""
    settled: Outcome | None = None
    """An outcome told after the last start, and after the verdict if there is one."""
    verdict: object = None
    attempts: list[AttemptRecord] = field(default_factory=list)


@dataclass
class _Story:
    """What the journals say of the session, so far."""

    facts: dict[str, object] = field(default_factory=dict)
    states: dict[str, _State] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)
    """Worker -> why it ended before its work did."""
    interrupted: bool = False

    def state(self, id: str) -> _State:
        """The state of plan `id`, from now on known."""
        return self.states.setdefault(id, _State(id=id, folder=id))


def gather(folder: Path, unwritten: Sequence[bytes] = (), load_result: LoadResult | None = None) -> Gathered:
    """The report of the session in `folder`; `unwritten` are journal lines that the disk refused."""
    journal = read_journals(folder, unwritten)
    story = _Story()
    for entry in journal.entries:
        _tell(story, entry)
    # A journal may have lost lines to a full disk; a plan's own folder still speaks for it.
    problems, remarks = list(journal.problems), []
    for path in sorted(folder.glob("*/plan.json")):
        if is_text(path.parent.name):
            story.state(path.parent.name)
        else:
            remarks.append(f"{path.parent}: its name is not UTF-8, so it is no plan of ours; rename or remove it")
    results = []
    for state in story.states.values():
        try:
            results.append(_result(state, story, folder, load_result or (lambda path: load(Result, path)), problems))
        except UsageProblem as problem:
            problems.append(f"{state.id} is missing from the results: {problem}")
    report = SessionReport(session=_facts(story, folder), selected=tuple(story.states), results=tuple(results))
    return Gathered(report, tuple(problems), tuple(remarks))


def _tell(story: _Story, entry: Entry) -> None:
    match entry.record:
        case SessionRecord() as record:
            story.facts.update(record.model_dump(exclude_none=True))
        case SelectedRecord() as record:
            for plan in record.plans:
                story.state(str(plan.get("id"))).plan = plan
        case WorkerRecord() as record:
            story.dead[record.worker] = record.reason
        case InterruptRecord():
            story.interrupted = True
        case PlanRecord() | AttemptRecord() | OutcomeRecord() | VerdictRecord() as record:
            _tell_plan(story.state(record.id), record, entry.worker)


def _tell_plan(state: _State, record: PlanRecord | AttemptRecord | OutcomeRecord | VerdictRecord, worker: str) -> None:
    # The controller speaks for plans that nobody ran; of one that a worker started, the worker knows better.
    foreign = bool(state.worker) and worker == CONTROLLER and state.worker != CONTROLLER
    match record:
        case PlanRecord() if not foreign:
            state.plan = record.plan or state.plan
            state.folder = _inside(record.folder) or state.folder
            state.worker, state.settled, state.verdict, state.attempts = worker, None, None, []
        case AttemptRecord():
            state.attempts.append(record)
        case OutcomeRecord() if not (foreign and record.outcome.status == "not_started"):
            state.settled = record.outcome
        case VerdictRecord():
            state.verdict, state.settled = record.result, None
            state.folder = _inside(record.folder) or state.folder
        case _:
            pass


def _inside(folder: str) -> str:
    """`folder` relative to the session's, which may have been moved to another machine since."""
    return Path(folder).name if Path(folder).is_absolute() else folder


def _result(state: _State, story: _Story, folder: Path, load_result: LoadResult, problems: list[str]) -> Result:
    """The result of one plan. Raises UsageProblem where not even its plan can be read."""
    judged = _judged(state, folder, load_result, problems)
    if judged is not None:
        return judged if state.settled is None else judged.model_copy(update={"outcome": state.settled})
    plan_file = folder / state.folder / "plan.json"
    plan = parsed(Plan, state.plan, f"the plan {state.id} in the journal") if state.plan else load(Plan, plan_file)
    return lost_result(plan, state.settled or _unsettled(state, story), state.attempts)


def _judged(state: _State, folder: Path, load_result: LoadResult, problems: list[str]) -> Result | None:
    """The verdict: result.json where there is one, else as the journal has it; None: there was none."""
    path = folder / state.folder / "result.json"
    result: Result | None = None
    try:
        if path.is_file():
            result = load_result(path)
        elif state.verdict is not None:
            result = parsed(Result, state.verdict, f"the verdict on {state.id} in the journal")
        if result is not None and result.id != state.id:
            raise UsageProblem(f"{path}: it is of {result.id!r}, not of {state.id!r}")
    except UsageProblem as problem:
        problems.append(str(problem))
        # A verdict that cannot be read is no verdict, and must not look like a plan that never ran.
        state.settled = Outcome(status="error", category="harness", reason=str(problem))
        return None
    return result


def _unsettled(state: _State, story: _Story) -> Outcome:
    """How a plan ended that nobody settled."""
    if not state.worker:
        return Outcome(status="not_started", category="interrupted", reason=f"{_end(story)} before this plan began")
    if state.worker in story.dead:
        return Outcome(
            status="error",
            category="worker_lost",
            reason=f"the worker process {state.worker} ended while it ran this plan: {story.dead[state.worker]}",
        )
    if story.interrupted:
        reason = "the session was interrupted (Ctrl-C or SIGTERM) while this plan ran"
        return Outcome(status="error", category="interrupted", reason=reason)
    reason = f"this plan was started by the process {state.worker} and never settled: {_end(story)} first"
    return Outcome(status="error", category="worker_lost", reason=reason)


def _end(story: _Story) -> str:
    if story.interrupted:
        return "the session was interrupted (Ctrl-C or SIGTERM)"
    if story.facts.get("finished"):
        return f"the session ended (exit status {story.facts.get('exit_status')})"
    return "the session was killed, or this report was written,"


def _facts(story: _Story, folder: Path) -> SessionFacts:
    facts = SessionRecord.model_validate({**story.facts, "kind": "session"})
    command = facts.command or ""
    git = facts.git or {}
    commit, dirty = git.get("commit"), git.get("dirty")
    return SessionFacts(
        id=facts.id or folder.resolve().name,
        started=facts.started,
        finished=facts.finished,
        command=command if isinstance(command, str) else shlex.join(command),
        exit_status=facts.exit_status,
        git=Git(
            commit=commit if isinstance(commit, str) else None,
            dirty=dirty if isinstance(dirty, bool) else None,
        ),
        versions={name: value for name, value in sorted((facts.versions or {}).items()) if value is not None},
        ci=dict(sorted((facts.ci or {}).items())),
    )
