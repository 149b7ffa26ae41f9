"""Proofs of replaced parts: which ones an equivalence test proves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reports.equivalence import Found, Tried
from reports.escape import one_line, visible
from suite.catalog import Catalog, load_catalog
from suite.digest import Digests
from suite.errors import UsageProblem
from suite.plan import Plan, Request, Step
from suite.selection import plans
from suite.slots import RUNTIME, UNREADABLE, Proof, VendorCode


def proofs(found: Found, vendor_paths: Sequence[Path], suite_dir: Path, *, by: str, today: str) -> tuple[Proof, ...]:
    """A proof for each part that B replaces and A leaves standard; none where A replaces the same parts or B none.

    Raises UsageProblem where the run shows something else than the code that is here now, for that is what a proof is
    about.
    """
    a, b = found.a, found.b
    steps = [step for step in b.plan.slots if not step.proven]
    if not steps:
        return ()
    _standard_reference(a, steps)
    _reported(b, steps)
    catalog = load_catalog(suite_dir, list(vendor_paths) or [b.plan.vendor_dir])
    _same_code(b.plan, catalog)
    case = catalog.case(b.plan.model, b.plan.framework)
    for step in steps:
        if step.slot == UNREADABLE or step.slot not in (*case.spec.extern.slots, RUNTIME):
            have = ", ".join(case.spec.extern.slots) or "none"
            raise UsageProblem(f"{step.path}: {case} declares no slot {step.slot!r} (have: {have}); fill one of these")
    code = VendorCode(catalog, catalog.vendor(b.plan.vendor), case, Digests(suite_dir.resolve()))
    extern, runtime = code.digest
    source = visible(_source(found, by=by, today=today))
    return tuple(
        Proof(
            where=f"runtime/{case.framework}" if step.slot == RUNTIME else str(case),
            slot=step.slot,
            digest=runtime if step.slot == RUNTIME else extern,
            source=source,
        )
        for step in steps
    )


def _standard_reference(a: Tried, steps: Sequence[Step]) -> None:
    """Raise UsageProblem unless A is what the standard parts do."""
    if a.plan.division != "closed":
        reasons = "; ".join(a.plan.division_reasons) or "no reason was recorded"
        raise UsageProblem(f"{a.name}: division open ({reasons}); the reference of a proof is a closed plan")
    filled = {step.slot for step in a.plan.slots} & {step.slot for step in steps}
    if filled:
        raise UsageProblem(
            f"{a.name}: replaces {', '.join(sorted(filled))} itself; run the reference without the vendor's extern/"
            " and runtime/"
        )


def _reported(b: Tried, steps: Sequence[Step]) -> None:
    """Raise UsageProblem where a rank did not say that it ran the part: the plan alone shows nothing."""
    for run in b.runs:
        said = run.environment.get("slots")
        names = {str(name).partition(":")[0] for name in said} if isinstance(said, dict) else set()
        for step in steps:
            if step.slot not in names:
                raise UsageProblem(
                    f"{b.name}/{run.folder}: its header lists no replaced {step.slot!r} (have: "
                    f"{', '.join(sorted(names)) or 'none'}), so nothing was proven; let fill() set it"
                )


def _same_code(plan: Plan, catalog: Catalog) -> None:
    """Raise UsageProblem unless the code here is what ran: the plan made again has the same digest."""
    sets = [f"{key}={json.dumps(value)}" for key, value in plan.params.items() if plan.origins.get(key) == "--set"]
    request = Request(
        vendor=plan.vendor,
        machine=plan.machine,
        models=(plan.model,),
        frameworks=(plan.framework,),
        presets=(plan.preset,),
        topologies=(str(plan.topology),),
        mode=plan.mode,
        repeat=plan.repeat,
        sets=tuple(sets),
    )
    ours = next((one for one in plans(catalog, request) if one.id == plan.id), None)
    digest = ours.plan_digest[:12] if ours else "no such plan"
    if ours is None or ours.plan_digest != plan.plan_digest:
        raise UsageProblem(
            f"{plan.id}: plan_digest {plan.plan_digest[:12]} was run, this checkout has {digest}; a proof is of"
            " the code that is here: run it again, or name the vendor's folder with --vendor-path"
        )


def _source(found: Found, *, by: str, today: str) -> str:
    """Who, when, with what; no folder of this host."""
    a, b, bands = found.a, found.b, found.report.bands
    worst = max(band.difference or 0.0 for band in bands)
    runs = "1 pair of runs" if len(bands) == 1 else f"{len(bands)} pairs of runs"
    who = f"{one_line(by)}, " if by.strip() else ""
    return (
        f"{who}{today}, python -m reports equivalence on {b.plan.vendor} {b.plan.machine}: {b.name} (plan"
        f" {b.plan.plan_digest[:12]}) against {a.name} (plan {a.plan.plan_digest[:12]}), {runs}, losses apart by"
        f" {100 * worst:.3g} % at most, target met by all"
    )
