"""Measures one run from its folder alone: a Measurement, whose problem says why the run is lost or void, if it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suite.consistency import (
    check_against,
    check_clock,
    check_files,
    check_marks,
    check_quality,
    check_samples,
    check_seals,
    check_witness,
    expected_streams,
)
from suite.contamination import contamination
from suite.curve import points, thinned
from suite.events import BadEvents, finite, has_begun
from suite.harness_log import HarnessLog, Json, bad_exit, read_harness, read_object
from suite.ledger import make_ledger
from suite.log_tail import log_tail
from suite.measurement import Measurement
from suite.outcome import Outcome
from suite.plan import Plan, Quality
from suite.rank_stream import RankStream, read_stream
from suite.rank_totals import RankTotals
from suite.requality import add_requality
from suite.run_facts import environment_of
from suite.run_metrics import run_metrics
from suite.soundness import check_own, check_rank, check_shared, check_sound, trace
from suite.steady import Steady, find_steady

ABORTED = {
    "nonfinite_loss": ("failed", "nonfinite_loss"),
    "config": ("error", "config"),
    "environment": ("error", "environment"),
    "signal": ("error", "interrupted"),
}
"""Reasons of an aborted run_stop that name a category; any other is a crash."""


class _Lost(Exception):
    """The run ended badly; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(slots=True)
class _Reading:
    """What could be read so far: a lost run still shows its curve and where its time went."""

    first: RankStream | None = None
    steady: Steady | None = None
    totals: RankTotals | None = None


def measure(plan: Plan, run_dir: Path) -> Measurement:
    """Measure the run in `run_dir`. Never raises for what is in the folder.

    The problem, first found: what the harness itself saw (`ended`); an exit that was not clean; a stream that is
    absent, torn or contradicts itself, another, the plan or the witness (`failed: invalid_measurement`, told in
    consistency.py); a loss that is not finite; an aborted run_stop. A lost or void run has a curve and a ledger where
    they can be read, and no metrics.
    """
    harness = read_harness(run_dir)
    run = read_object(run_dir / "run.json")
    number, seed, attempt = (run.get(key) for key in ("n", "seed", "attempt"))
    n = number if isinstance(number, int) and number > 0 else _number(run_dir.name)
    reading = _Reading()
    problem: Outcome | None = None
    try:
        _read(plan, run_dir, harness, run, reading)
    except _Lost as lost:
        problem = lost.outcome
    except BadEvents as bad:
        problem = _with_tail(Outcome(status="failed", category="invalid_measurement", reason=str(bad)), run_dir)
    if harness.ended is not None and harness.ended.status != "passed":
        problem = harness.ended if harness.ended.log_tail else _with_tail(harness.ended, run_dir)
    measurement = Measurement(
        n=n,
        seed=seed if isinstance(seed, int) else plan.seeds[min(n, len(plan.seeds)) - 1] if plan.seeds else 0,
        run=str(reading.first.header.data.get("run") or "") if reading.first is not None else "",
        folder=run_dir.name,
        attempts=attempt if isinstance(attempt, int) and attempt > 0 else 1,
        problem=problem,
        environment=environment_of(run_dir, reading.first, reading.totals),
    )
    return measurement.model_copy(update=_numbers(plan, run_dir, harness, reading, problem))


def _numbers(
    plan: Plan, run_dir: Path, harness: HarnessLog, reading: _Reading, problem: Outcome | None
) -> dict[str, object]:
    """The fields of a Measurement that come from the streams, as far as they could be read."""
    first, steady, totals = reading.first, reading.steady, reading.totals
    if first is None or steady is None:
        return {}
    ledger = make_ledger(first, steady, harness.phases, logged=plan.evidence == "log")
    fields: dict[str, object] = {
        "ledger": ledger,
        "losses": thinned(first.losses),
        "trace": trace(first),
        "notes": tuple(first.warnings[:20]),
    }
    try:
        curve = points(plan, first)
    except BadEvents:
        curve = ()
    fields["curve"] = curve
    if problem is not None or totals is None:
        return fields
    try:
        metrics, missing, facts = run_metrics(plan, run_dir, first, totals, ledger, curve)
        results = first.all("eval_result")
        add_requality(plan, run_dir, curve, metrics, missing, results[-1] if results else None)
    except BadEvents as bad:
        return {**fields, "problem": Outcome(status="failed", category="invalid_measurement", reason=str(bad))}
    if metrics.get("mfu", 0.0) > 1.0:
        reason = f"an MFU of {metrics['mfu']:.0%} is not possible: FLOP, peak or time is miscounted"
        return {**fields, "problem": Outcome(status="failed", category="invalid_measurement", reason=reason)}
    environment = environment_of(run_dir, first, totals) | facts
    return {**fields, "metrics": metrics, "missing": missing, "environment": environment}


def _read(plan: Plan, run_dir: Path, harness: HarnessLog, run: Json, reading: _Reading) -> None:
    """Read every stream into `reading`; `run` is run.json. Raises BadEvents or _Lost at the first wrong thing."""
    lost = _seen_by_harness(plan, run_dir, harness)
    events = run_dir / "events"
    if lost is not None and not has_begun(events / "rank0.jsonl"):
        raise _Lost(lost)
    reading.first = first = read_stream(events / "rank0.jsonl", 0)
    reading.steady = find_steady(first.step_s)
    if lost is not None:
        raise _Lost(lost)
    streams = expected_streams(plan, first.header)
    check_files(run_dir, streams)
    check_own(plan, run, first)
    check_clock(first)
    totals = RankTotals(steady=reading.steady)
    logged = plan.evidence == "log"
    troubles = [_trouble(first, run_dir)]
    totals.add(first)
    for rank in range(1, streams):
        stream = read_stream(events / f"rank{rank}.jsonl", rank)
        trouble = _trouble(stream, run_dir)
        troubles.append(trouble)
        # A rank that gave up early has fewer windows; that it gave up is the finding.
        if not any(troubles):
            check_against(first, stream, logged=logged)
            check_marks(plan, stream)
            check_rank(plan, stream)
            if logged:
                totals.add_facts(stream)
            else:
                totals.add(stream)
    worst = [trouble for trouble in troubles if trouble is not None]
    if worst:
        raise _Lost(min(worst, key=lambda outcome: outcome.category != "nonfinite_loss"))
    check_marks(plan, first)
    check_samples(plan, first, totals.window_samples)
    if plan.mode == "converge":
        check_quality(_judged_quality(plan, run.get("quality")), first, [point.value for point in points(plan, first)])
    check_sound(plan, first)
    check_shared(first, totals.data)
    check_witness(first.span_s, harness.witness_s)
    check_seals(run_dir, harness.seals)
    if not first.windows:
        raise BadEvents("events/rank0.jsonl: not one step of training")
    _check_alone(plan, run_dir, first)
    reading.totals = totals


def _check_alone(plan: Plan, run_dir: Path, first: RankStream) -> None:
    """Raise _Lost where a device that must be ours alone was not, from run_start to run_stop."""
    start, stop = first.first("run_start"), first.stop
    if plan.exclusive and start is not None and stop is not None and first.header.has("t_wall"):
        to_wall = first.header.number("t_wall") - first.header.t
        void = contamination(run_dir, (start.t + to_wall, stop.t + to_wall))
        if void is not None:
            raise _Lost(void)


def _seen_by_harness(plan: Plan, run_dir: Path, harness: HarnessLog) -> Outcome | None:
    """Why the run is lost, as far as the harness and the exit records tell."""
    ended = harness.ended
    if ended is not None and ended.status != "passed":
        return ended
    if harness.bad_line:
        return Outcome(status="failed", category="invalid_measurement", reason=harness.bad_line)
    if ended is None:
        reason = "harness.jsonl does not say how the run ended: the harness was lost before it could"
        return _with_tail(Outcome(status="error", category="worker_lost", reason=reason), run_dir)
    found = bad_exit(run_dir, plan.world_size) if plan.evidence == "driver" or plan.script else None
    if found is None:
        return None
    rank, reason = found
    return _with_tail(Outcome(status="error", category="crash", reason=reason, rank=rank), run_dir)


def _trouble(stream: RankStream, run_dir: Path) -> Outcome | None:
    """Why this rank spoils the run. Raises BadEvents for a stream without its end."""
    rank, stop = stream.rank, stream.stop
    if stream.nonfinite_step is not None:
        reason = f"the loss of rank {rank} is not finite at step {stream.nonfinite_step}"
        return _with_tail(Outcome(status="failed", category="nonfinite_loss", reason=reason, rank=rank), run_dir)
    if stop is None:
        raise BadEvents(f"events/rank{rank}.jsonl: no run_stop, though the run ended as if every rank had finished")
    if stop.text("status") == "success":
        return None
    why = stop.text("reason")
    status, category = ABORTED.get(why, ("error", "crash"))
    detail = stop.text("detail") or why or "no reason given"
    found = {"status": status, "category": category, "reason": f"rank {rank} aborted: {detail}", "rank": rank}
    return _with_tail(Outcome.model_validate(found), run_dir)


def _judged_quality(plan: Plan, planned: object) -> Quality:
    """The target that the ranks were given, from which they computed `met`; the plan's where run.json is silent."""
    target = finite(planned.get("target")) if isinstance(planned, dict) else None
    return plan.quality if target is None else plan.quality.model_copy(update={"target": target})


def _with_tail(outcome: Outcome, run_dir: Path) -> Outcome:
    return outcome.model_copy(update={"log_tail": log_tail(run_dir, outcome.rank)})


def _number(name: str) -> int:
    """The repeat number in a run folder's name, `r2.3`: 2."""
    digits = name.removeprefix("r").partition(".")[0]
    return int(digits) if digits.isdecimal() and 0 < len(digits) < 10 else 1
