"""The result of a plan that nobody judged: never started, or lost. It has the same checks, without numbers."""

from __future__ import annotations

from collections.abc import Sequence

from reports.records import AttemptRecord
from suite.outcome import Outcome
from suite.plan import Plan
from suite.result import CheckResult, Result, RunResult


def lost_result(plan: Plan, outcome: Outcome, attempts: Sequence[AttemptRecord] = ()) -> Result:
    """`plan` as a Result that ended with `outcome`; every check is `inconclusive: not_measured`."""
    why = f"not_measured: the plan ended as {outcome.status}: {outcome.category}"
    return Result(
        id=plan.id,
        model=plan.model,
        framework=plan.framework,
        vendor=plan.vendor,
        machine=plan.machine,
        topology=plan.topology,
        preset=plan.preset,
        mode=plan.mode,
        division=plan.division,
        division_reasons=plan.division_reasons,
        evidence=plan.evidence,
        verified=plan.verified,
        seeds=plan.seeds,
        outcome=outcome,
        checks=tuple(
            CheckResult(
                name=check.name,
                metric=check.metric,
                value=None,
                op=check.op,
                threshold=check.threshold,
                unit=check.unit,
                required=check.required,
                status="inconclusive",
                reason=why,
                source=check.source,
            )
            for check in plan.checks
        ),
        metrics={},
        ledger={},
        curve=(),
        runs=_runs(plan, attempts),
        params=plan.params,
        origins=plan.origins,
        case_digest=plan.case_digest,
        measurement_version=plan.measurement_version,
        plan_digest=plan.plan_digest,
        data_digest=plan.data_digest,
        environment={},
        comparability_key="",
        base=None,
        artifacts=(),
    )


def _runs(plan: Plan, attempts: Sequence[AttemptRecord]) -> tuple[RunResult, ...]:
    """The last attempt of each run that ended before the plan was lost; a base's runs are not the plan's own."""
    last: dict[int, AttemptRecord] = {}
    for attempt in attempts:
        if 1 <= attempt.n <= len(plan.seeds) and "base" not in attempt.folder.split("/"):
            last[attempt.n] = attempt
    return tuple(
        RunResult(
            n=n,
            seed=plan.seeds[n - 1],
            folder=attempt.folder,
            outcome=attempt.outcome,
            metrics={},
            ledger={},
            curve=(),
            attempts=attempt.attempt,
            environment={},
        )
        for n, attempt in sorted(last.items())
    )
