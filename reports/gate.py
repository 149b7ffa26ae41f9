"""Whether a session may pass: its own verdicts, and no regression against an approved baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from reports.compare import Measured, adjusted, differing_environment, measured
from reports.comparison import Pair
from reports.detectable import sentences
from reports.evidence import changed_evidence
from reports.json_report import SessionFacts, SessionReport
from reports.sides import read_side
from suite.baseline_file import Baseline, baseline_files
from suite.errors import did_you_mean
from suite.figures import Figures, figures_of
from suite.requality import VALUE as REQUALITY
from suite.result import Result

PASS, REGRESSION, NOTHING_JUDGED, INFRASTRUCTURE, USAGE, NOTHING_MEASURED = range(6)

SENTENCES = {
    PASS: "passed",
    REGRESSION: "a regression or a failure",
    NOTHING_JUDGED: "not judged: nothing here can say that it is good",
    INFRASTRUCTURE: "the infrastructure failed, which says nothing about the change",
    NOTHING_MEASURED: "nothing was measured",
}

COMPARED = "baseline"
"""Required like a check: that an approved baseline of this very environment was there to compare with."""

NOT_THE_CHANGE = frozenset(
    {"environment", "provision", "lost_node", "preempted", "worker_lost", "interrupted", "harness"}
)
"""Categories of `error` that the machine or the harness answers for; a crash or a hang is the code's."""

Standing = Literal["passed", "failed", "infrastructure", "not judged", "not started", "shown"]


class Judged(NamedTuple):
    """One plan as the gate sees it."""

    result: Result
    standing: Standing
    reason: str
    baseline: str
    """What it was compared with, or why with nothing."""
    pair: Pair | None
    detectable: tuple[str, ...]
    """Beside each threshold, the smallest change that so many runs of this spread can find."""


class Decided(NamedTuple):
    """The whole session."""

    session: SessionFacts
    code: int
    plans: tuple[Judged, ...]
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """`passed (exit code 0)`."""
        return f"{SENTENCES[self.code]} (exit code {self.code})"


def gate(
    report: SessionReport,
    baselines: Sequence[Path],
    *,
    required: Sequence[str] = (),
    expected: Sequence[str] = (),
    requality: bool = False,
    folder: Path | None = None,
) -> Decided:
    """Decide on `report`. Raises UsageProblem for a baseline that cannot be read: a gate without it would be open.

    `required` are checks that every plan must have passed, or `baseline`: there was one to compare with. `expected`
    are ids of plans that must be there. With `requality`, a quality counts only where it was found again in the final
    checkpoint. What lies in the session's `folder` must be what was judged.
    """
    known = tuple(figures for path in baselines for figures in _known(path))
    day = (report.session.started or "9999-12-31")[:10]
    partners = [_partner(figures_of(result), known, day) for result in report.results]
    compared: list[Measured] = []
    for result, (partner, _) in zip(report.results, partners):
        if partner is not None:
            compared.append(measured(partner, figures_of(result)))
    pairs = {pair.id: pair for pair in adjusted(compared)}
    plans = tuple(
        _unchanged(
            _judged(result, told, pairs.get(result.id), _required_of(result, required, requality=requality)), folder
        )
        for result, (_, told) in zip(report.results, partners)
    )
    # What the session itself says it selected is expected too: a result that is gone may be the one that failed.
    absent = sorted({*expected, *report.selected} - {result.id for result in report.results})
    every = [*required, *([f"{REQUALITY} (mode converge)"] if requality else [])]
    return Decided(report.session, _code(report, plans, absent), plans, tuple(_notes(report, every, absent)))


def _required_of(result: Result, required: Sequence[str], *, requality: bool) -> tuple[str, ...]:
    """A plan that trains to no target has no quality to be found again."""
    return (*required, *([REQUALITY] if requality and result.mode == "converge" else []))


def _known(path: Path) -> tuple[Figures, ...]:
    # A folder without a baseline yet is no mistake: the first one is proposed from what ran without any.
    # Neither are a chip's proofs, which lie beside the baselines.
    if path.is_dir() and not any(baseline_files(path)) and not any(path.rglob("*.json")):
        return ()
    return read_side(path).figures


def _partner(figures: Figures, known: Sequence[Figures], day: str) -> tuple[Figures | None, str]:
    """What `figures` is held against, and in words; None with the reason."""
    same = [one for one in known if (one.task, one.place) == (figures.task, figures.place)]
    if not same:
        return None, "no baseline"
    if not figures.fingerprint:
        return None, "never judged, so nothing to compare"
    equal = [one for one in same if one.fingerprint == figures.fingerprint]
    usable = [one for one in equal if not isinstance(one, Baseline) or one.standing(day) == "approved"]
    if usable:
        chosen = max(usable, key=lambda one: one.approved if isinstance(one, Baseline) else "")
        named = f"baseline of {chosen.approved}" if isinstance(chosen, Baseline) else "an earlier session"
        return chosen, f"{named}, fingerprint {chosen.fingerprint[:12]}"
    for one in equal:
        if isinstance(one, Baseline):
            return None, f"its baseline is {one.standing(day)}" + (f": {one.reason}" if one.reason else "")
    differs = differing_environment(same[0], figures) or ["measurement_version or data differs"]
    return None, f"no baseline of this environment ({'; '.join(differs)})"


def _judged(result: Result, told: str, pair: Pair | None, required: Sequence[str]) -> Judged:
    standing, reason = _standing(result, pair, required)
    return Judged(result, standing, reason, told, pair, tuple(sentences(result)))


def _unchanged(judged: Judged, folder: Path | None) -> Judged:
    """What passed does not where its evidence was changed since; a session without its runs has none to change."""
    if folder is None or judged.standing != "passed":
        return judged
    reason = changed_evidence(folder, judged.result)
    return judged._replace(standing="failed", reason=reason) if reason else judged


def _standing(result: Result, pair: Pair | None, required: Sequence[str]) -> tuple[Standing, str]:
    outcome = result.outcome
    told = ": ".join(part for part in (outcome.status, outcome.category, outcome.reason) if part)
    if outcome.status == "not_started":
        return "not started", told
    if result.division == "open" or result.evidence == "log":
        why = "; ".join(result.division_reasons) if result.division == "open" else "evidence log"
        return "shown", f"{told}; never gates: {why}"
    if outcome.status == "error":
        return ("infrastructure" if outcome.category in NOT_THE_CHANGE else "failed"), told
    if outcome.status == "failed":
        return "failed", told
    worse = [row for row in pair.rows if row.verdict == "regression"] if pair is not None and pair.gates else []
    if worse:
        return "failed", "; ".join(f"{row.metric}: {row.reason}" for row in worse)
    if outcome.status == "inconclusive":
        return "not judged", told
    passed = {check.name for check in result.checks if check.status == "pass"}
    passed |= {COMPARED} if pair is not None else set()
    absent = [name + _hint(name, result) for name in required if name not in passed]
    return ("not judged", f"required here and not passed: {', '.join(absent)}") if absent else ("passed", "")


def _hint(name: str, result: Result) -> str:
    """How a requirement comes to be met, where its name alone does not tell."""
    checks = [check.name for check in result.checks]
    if name == COMPARED:
        return " (run `python -m reports baseline propose` on a session to trust, have it approved, name its folder)"
    if name in checks or name == REQUALITY:
        return ""
    return f" (the plan has no such check{did_you_mean(name, [*checks, COMPARED])})"


def _code(report: SessionReport, plans: Sequence[Judged], absent: Sequence[str]) -> int:
    """A failure speaks first, then what voids the session; a pass needs something that passed."""
    standings = {plan.standing for plan in plans}
    if "failed" in standings:
        return REGRESSION
    if "infrastructure" in standings or report.session.exit_status in (None, 2, 3):
        return INFRASTRUCTURE
    if standings <= {"not started"}:
        return NOTHING_MEASURED
    lacking = bool(absent) or any(plan.reason.startswith("required here") for plan in plans)
    return PASS if "passed" in standings and not lacking else NOTHING_JUDGED


def _notes(report: SessionReport, required: Sequence[str], absent: Sequence[str]) -> list[str]:
    notes = [f"{id}: expected here and not in the session" for id in absent]
    if report.session.exit_status is None:
        notes.append("the session was killed before its end")
    if report.session.git.dirty:
        notes.append("the checkout held changes that are in no commit")
    if required:
        notes.append(f"required of every plan: {', '.join(required)}")
    return notes
