"""What the ranks of a conformance run found, as a Measurement: the worst of all ranks is the chip's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from suite.capabilities import CAPABILITIES
from suite.conformance.checks import BY_NAME, MODEL, OBSERVED
from suite.conformance_monitor import observed
from suite.consistency import check_seals
from suite.events import BadEvents
from suite.harness_log import bad_exit, read_harness, read_object
from suite.log_tail import log_tail
from suite.measurement import Measurement, Missing
from suite.outcome import Outcome
from suite.plan import Check, Plan
from suite.rank_stream import RankStream, read_stream
from suite.result import CheckResult
from suite.run_facts import environment_of

EXCHANGE = "all_to_all"
"""The collective that a back end may lack."""

REMARKS = "remarks"
"""Of a Measurement's environment: {check: what the ranks say about it}."""


def is_conformance(plan: Plan) -> bool:
    """Whether the plan asks what a chip can do, and trains nothing."""
    return plan.model == MODEL


def measure_findings(plan: Plan, run_dir: Path) -> Measurement:
    """Measure a conformance run from its folder alone. Never raises for what is in the folder."""
    run = read_object(run_dir / "run.json")
    seed, attempt = run.get("seed"), run.get("attempt")
    base = Measurement(
        n=1,
        seed=seed if isinstance(seed, int) else plan.seeds[0],
        folder=run_dir.name,
        attempts=attempt if isinstance(attempt, int) and attempt > 0 else 1,
        environment=environment_of(run_dir, None, None),
    )
    try:
        streams, problem = _streams(plan, run_dir)
        environment = environment_of(run_dir, streams[0], None) if streams else base.environment
        if problem is not None:
            return base.model_copy(update={"problem": problem, "environment": environment})
        metrics, missing, remarks = _findings(plan, run_dir, streams)
        facts = {**environment, REMARKS: remarks, **_capabilities(streams[0], metrics, missing)}
    except BadEvents as bad:
        outcome = Outcome(status="failed", category="invalid_measurement", reason=str(bad))
        return base.model_copy(update={"problem": outcome})
    return base.model_copy(update={"metrics": metrics, "missing": missing, "environment": facts})


def with_remark(check: CheckResult, runs: Sequence[Measurement]) -> CheckResult:
    """A failed check with what the ranks saw, and whom to see about it."""
    if check.status != "fail" or not runs or check.name not in BY_NAME:
        return check
    remarks = runs[0].environment.get(REMARKS)
    remark = str(remarks.get(check.name, "")) if isinstance(remarks, dict) else ""
    parts = [check.reason, remark, BY_NAME[check.name].remedy]
    return check.model_copy(update={"reason": "; ".join(part for part in parts if part)})


def _streams(plan: Plan, run_dir: Path) -> tuple[list[RankStream], Outcome | None]:
    """The streams of all ranks, or as far as they go with why the run is lost. Raises BadEvents."""
    harness = read_harness(run_dir)
    if harness.ended is not None and harness.ended.status != "passed":
        return _first(run_dir), harness.ended
    if harness.ended is None:
        reason = "harness.jsonl does not say how the run ended: the harness was lost before it could"
        return [], Outcome(status="error", category="worker_lost", reason=reason)
    if (bad := bad_exit(run_dir, plan.world_size)) is not None:
        rank, reason = bad
        tail = log_tail(run_dir, rank)
        return _first(run_dir), Outcome(status="error", category="crash", reason=reason, rank=rank, log_tail=tail)
    streams = [read_stream(run_dir / "events" / f"rank{rank}.jsonl", rank) for rank in range(plan.world_size)]
    for stream in streams:
        if stream.stop is None or stream.stop.text("status") != "success":
            raise BadEvents(f"events/rank{stream.rank}.jsonl: no run_stop of a success, though every rank left with 0")
    check_seals(run_dir, harness.seals)
    return streams, None


def _first(run_dir: Path) -> list[RankStream]:
    """Rank 0's stream of a lost run, for its header; a bad one is not what the run was lost for."""
    try:
        return [read_stream(run_dir / "events" / "rank0.jsonl", 0)]
    except BadEvents:
        return []


def _findings(
    plan: Plan, run_dir: Path, streams: Sequence[RankStream]
) -> tuple[dict[str, float], dict[str, Missing], dict[str, str]]:
    metrics: dict[str, float] = {}
    missing: dict[str, Missing] = {}
    remarks: dict[str, str] = {}
    for check in plan.checks:
        if check.name in OBSERVED:
            value, remark = observed(check.name, plan, run_dir, streams)
        else:
            value, remark = _worst(check, streams)
        remarks |= {check.name: remark} if remark else {}
        if value is None:
            missing[check.metric] = Missing(category="not_observable", reason=remark or "no rank says why")
        else:
            metrics[check.metric] = value
    return metrics, missing, remarks


def _worst(check: Check, streams: Sequence[RankStream]) -> tuple[float | None, str]:
    """The value that is hardest on the check, and what that rank says; None where any rank has none."""
    found: list[tuple[float, str]] = []
    for stream in streams:
        event = next((mark for mark in stream.all("finding") if mark.text("check") == check.name), None)
        if event is None:
            raise BadEvents(f"events/rank{stream.rank}.jsonl: no finding about {check.name}")
        remark = event.text("remark")
        remark = f"rank {stream.rank}: {remark}" if remark and len(streams) > 1 else remark
        if not event.has("value"):
            return None, remark
        found.append((event.number("value"), remark))
    return (min if check.op == ">=" else max)(found, key=lambda pair: pair[0])


def _capabilities(first: RankStream, metrics: Mapping[str, float], missing: Mapping[str, Missing]) -> dict[str, object]:
    """{"capabilities": {name: has}, "capability_remarks": {name: text}} as rank 0, and for collectives all, found."""
    found: dict[str, bool] = {}
    remarks: dict[str, str] = {}
    for event in first.all("capability"):
        name, has = event.text("name"), event.data.get("has")
        if name not in CAPABILITIES or not isinstance(has, bool):
            raise event.bad(f"{name!r} is no capability, or `has` is no boolean")
        found[name] = has
        remarks |= {name: event.text("remark")} if event.text("remark") else {}
    metric = BY_NAME[EXCHANGE].metric
    if metric in metrics or metric in missing:
        found[EXCHANGE] = metrics.get(metric) == BY_NAME[EXCHANGE].threshold
        remarks |= {EXCHANGE: missing[metric].reason} if metric in missing else {}
    return {"capabilities": found, "capability_remarks": remarks}
