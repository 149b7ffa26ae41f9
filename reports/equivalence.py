"""Whether B trains as A does: the same rules, loss curves inside a band, the same target; from the run folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from reports.contender import from_result
from reports.loss_band import FIRST_STEP, LEAST_STEPS, MOST_DIFFERENCE, Band, loss_band
from reports.places import plan_folders
from reports.versus import duel, recipe_differences
from reports.versus_record import Duel
from suite.errors import UsageProblem
from suite.events import BadEvents
from suite.measure import measure
from suite.measurement import Measurement
from suite.plan import Plan
from suite.price import Price
from suite.rank_stream import read_stream
from suite.record import Record
from suite.result import Result
from suite.run_folders import newest_attempts
from suite.schema_version import NewerSchema
from suite.slots import Proof
from suite.verdict import judge_folder

Status = Literal["pass", "fail", "unknown"]
Word = Literal["equivalent", "different", "unknown"]

SOUND = frozenset({"quality", "ranks_in_sync", "ledger", "requality", "too_good"})
"""Checks that ask whether it was trained, and honestly; a missed time or speed is no difference of the training."""


class Finding(Record):
    """One thing that was asked, and what came of it."""

    name: str
    status: Status
    text: str


class Equivalence(Record):
    """The answer."""

    schema_version: Literal[1] = 1
    a: str
    b: str
    """Session and plan of each side."""
    verdict: Word
    findings: tuple[Finding, ...]
    bands: tuple[Band, ...]
    duel: Duel
    """What is the same, what differs, and the figures: speedup, energy and price to target."""
    proofs: tuple[Proof, ...] = ()
    """Of the replaced parts that B has and A has not."""


class Tried(NamedTuple):
    """One side, read and judged again."""

    name: str
    plan: Plan
    result: Result
    runs: tuple[Measurement, ...]
    folders: tuple[Path, ...]


class Found(NamedTuple):
    """The answer, with what it was found from."""

    a: Tried
    b: Tried
    report: Equivalence


class _Key(NamedTuple):
    """What two plans have in common that may be held against each other."""

    model: str
    preset: str
    mode: str
    topology: str


def equivalence(a: Path, b: Path, known: Mapping[str, Price] | None = None) -> Found:
    """Hold B against A. Raises UsageProblem where the two name no single pair of plans."""
    one, other = _pair(a, b)
    if one.resolve() == other.resolve():
        raise UsageProblem(f"{a} and {b} are one plan's folder; a run agrees with itself: run it a second time")
    left, right = _tried(one), _tried(other)
    bands = tuple(_bands(left, right))
    findings = (
        *_rules(left, right), *_ends("A", left), *_ends("B", right), *_band_findings(left, right, bands)
    )  # fmt: skip
    statuses = {finding.status for finding in findings}
    report = Equivalence(
        a=left.name,
        b=right.name,
        verdict="different" if "fail" in statuses else "unknown" if "unknown" in statuses else "equivalent",
        findings=findings,
        bands=bands,
        duel=duel(from_result(left.result), from_result(right.result), (), known or {}),
    )
    return Found(left, right, report)


def _pair(a: Path, b: Path) -> tuple[Path, Path]:
    """The one plan folder of each side, of the same model, preset and topology."""
    for path in (a, b):
        if path.is_file():
            raise UsageProblem(f"{path}: a loss curve is in run folders only; name a session or a plan's folder")
    keys = [{folder: _key(_plan(folder)) for folder in plan_folders(path)} for path in (a, b)]
    pairs = [(one, other) for one, key in keys[0].items() for other, same in keys[1].items() if key == same]
    # A session that also measured throughput means its trainings here.
    pairs = [pair for pair in pairs if keys[0][pair[0]].mode == "converge"] or pairs
    if len(pairs) != 1:
        have = "; ".join(", ".join(sorted(folder.name for folder in side)) for side in keys)
        raise UsageProblem(
            f"{a} and {b} have {len(pairs)} trainings of the same model, preset and topology in common ({have});"
            " name the plan's folder on each side"
        )
    return pairs[0]


def _plan(folder: Path) -> Plan:
    try:
        return Plan.read(folder / "plan.json")
    except NewerSchema:
        raise
    except (OSError, ValueError) as problem:
        reason = str(problem).splitlines()[0]
        raise UsageProblem(f"{folder}/plan.json: not a plan of this version ({reason}); run it again") from None


def _key(plan: Plan) -> _Key:
    return _Key(plan.model, plan.preset, plan.mode, str(plan.topology))


def _tried(folder: Path) -> Tried:
    folders = tuple(newest_attempts(folder))
    plan = _plan(folder)
    real = folder.resolve()
    return Tried(
        name=f"{real.parent.name}/{real.name}",
        plan=plan,
        result=judge_folder(folder),
        runs=tuple(measure(plan, path) for path in folders),
        folders=folders,
    )


def _rules(a: Tried, b: Tried) -> Iterator[Finding]:
    """Both were to do the same."""
    if a.plan.mode != "converge":
        yield Finding(name="mode", status="fail", text="mode throughput reaches no target; run --mode converge")
    apart = recipe_differences(from_result(a.result), from_result(b.result))
    text = (
        f"differs in {', '.join(apart)}" if apart else "data, target, global batch, precision and parameters are equal"
    )
    yield Finding(name="recipe", status="fail" if apart else "pass", text=text)
    for side, one in (("A", a), ("B", b)):
        if one.plan.sabotage:
            yield Finding(name="sabotage", status="fail", text=f"{side} was broken on purpose: {one.plan.sabotage}")
        if one.plan.evidence == "log":
            yield Finding(name="evidence", status="fail", text=f"{side} was read from a log, which proves nothing")


def _ends(side: str, one: Tried) -> Iterator[Finding]:
    """Every run ended well, was sound, and met the target."""
    name = f"target of {side}"
    if not one.runs:
        yield Finding(name=name, status="unknown", text=f"no run: {one.result.outcome.reason or 'nothing was started'}")
        return
    if len(one.runs) < one.plan.repeat:
        text = f"{len(one.runs)} of {one.plan.repeat} runs left a folder; a run that is missing is no pass"
        yield Finding(name=name, status="unknown", text=text)
    lost = [(run.folder, run.problem) for run in one.runs if run.problem is not None]
    for folder, problem in lost:
        status: Status = "fail" if problem.status == "failed" else "unknown"
        yield Finding(name=name, status=status, text=f"{folder}: {problem.category}: {problem.reason}")
    missed = [run.folder for run in one.runs if run.problem is None and "time_to_train_s" not in run.metrics]
    if missed:
        yield Finding(name=name, status="fail", text=f"missed by {', '.join(missed)}: a bound, no time to target")
    elif not lost:
        yield Finding(name=name, status="pass", text=f"met by {len(one.runs)} of {len(one.runs)} runs")
    for check in one.result.checks:
        if check.name in SOUND - {"quality"} and check.status != "pass" and (check.required or check.status == "fail"):
            status = "fail" if check.status == "fail" else "unknown"
            yield Finding(name=f"{check.name} of {side}", status=status, text=check.reason)


def _bands(a: Tried, b: Tried) -> Iterator[Band]:
    """The losses of each pair of runs that had one seed."""
    for one, folder in zip(a.runs, a.folders):
        for other, beside in zip(b.runs, b.folders):
            if one.seed == other.seed:
                losses = [_losses(path) for path in (folder, beside)]
                yield loss_band(losses[0], losses[1], seed=one.seed, names=(one.folder, other.folder))


def _losses(folder: Path) -> Sequence[tuple[int, float]]:
    """Rank 0's training losses, every step; none where its stream cannot be read."""
    try:
        return read_stream(folder / "events" / "rank0.jsonl", 0).losses
    except BadEvents:
        return ()


def _band_findings(a: Tried, b: Tried, bands: Sequence[Band]) -> Iterator[Finding]:
    unpaired = sorted({run.seed for run in a.runs} ^ {run.seed for run in b.runs})
    if unpaired or not bands:
        text = f"seeds {', '.join(map(str, unpaired))} ran on one side only; repeat with the same --seed and --repeat"
        yield Finding(name="loss band", status="unknown", text=text if unpaired else "there is no pair of runs")
    for band in bands:
        status: Status = "pass" if band.status == "pass" else "fail" if band.status == "fail" else "unknown"
        yield Finding(name="loss band", status=status, text=_band_text(band))


def _band_text(band: Band) -> str:
    where = f"seed {band.seed}, {band.a} and {band.b}"
    if band.difference is None:
        return (
            f"{where}: {band.steps} steps from step {FIRST_STEP} on with a loss above zero on both sides,"
            f" {LEAST_STEPS} are needed"
        )
    return (
        f"{where}: mean relative difference {100 * band.difference:.3g} % over {band.steps} steps from step"
        f" {FIRST_STEP} on, below {100 * MOST_DIFFERENCE:g} % wanted; the largest {100 * (band.worst or 0):.3g} % at"
        f" step {band.worst_step}"
    )
