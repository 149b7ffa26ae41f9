"""Whether two loss curves are one: FlagPerf's rule for language models, a mean relative difference below 2 %."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from suite.record import Record

FIRST_STEP = 21
"""Before it, curves differ by chance more than by what is compared."""

MOST_DIFFERENCE = 0.02
LEAST_STEPS = 80
"""The rule is about a hundred steps, of which twenty do not count."""


class Band(Record):
    """Two runs of one seed, step by step."""

    seed: int
    a: str
    b: str
    """The run folders' names."""
    steps: int
    """Steps from FIRST_STEP on that both have a loss for."""
    difference: float | None
    """Mean of |b - a| / |a| over them; null: too few of them, or a loss of zero."""
    worst_step: int | None = None
    worst: float | None = None

    @property
    def status(self) -> str:
        """`pass`, `fail`, or `unknown`."""
        if self.difference is None:
            return "unknown"
        return "pass" if self.difference < MOST_DIFFERENCE else "fail"


def loss_band(
    a: Sequence[tuple[int, float]], b: Sequence[tuple[int, float]], *, seed: int, names: tuple[str, str]
) -> Band:
    """The difference of the losses `b` from `a`, each as (step, loss)."""
    one, other = dict(a), dict(b)
    steps = sorted(step for step in one.keys() & other.keys() if step >= FIRST_STEP)
    band = Band(seed=seed, a=names[0], b=names[1], steps=len(steps), difference=None)
    if len(steps) < LEAST_STEPS or any(one[step] == 0 for step in steps):
        return band
    apart: Mapping[int, float] = {step: abs(other[step] - one[step]) / abs(one[step]) for step in steps}
    worst = max(steps, key=lambda step: apart[step])
    update = {"difference": fmean(apart.values()), "worst_step": worst, "worst": apart[worst]}
    return band.model_copy(update=update)
