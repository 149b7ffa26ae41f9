"""Whether a plan can be broken in the way that `--sabotage` names: one that shows nothing would be a false comfort."""

from __future__ import annotations

from suite.drivers.sabotage import BY_NAME, misfit
from suite.errors import UsageProblem
from suite.plan import Plan


def refuse_misfit(plan: Plan) -> None:
    """Raises UsageProblem where the sabotage cannot show in this plan."""
    if plan.sabotage is None or plan.sabotage not in BY_NAME:
        return
    accumulation = plan.params.get("gradient_accumulation_steps", 1)
    why = misfit(
        plan.sabotage,
        framework=plan.framework if plan.script is None else "scripts",
        ranks=plan.world_size,
        accumulation=accumulation if isinstance(accumulation, int) else 1,
        mode=plan.mode,
        repeat=plan.repeat,
    )
    if why is not None:
        raise UsageProblem(f"--sabotage {plan.sabotage}: {plan.id}: it {why}")
