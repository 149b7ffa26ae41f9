"""What an evaluation found: shares of all ranks summed exactly, and held to the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from suite.drivers.events import RunProblem


class Evaluated(NamedTuple):
    """What an evaluation found, and what it was made of."""

    metrics: dict[str, float]
    counted: dict[str, float]
    """Name -> what the value is a share of, or how many records it was combined from."""
    training: int
    """Modules that were in training mode at its end: none, in a sound evaluation."""
    asked: str | None = None
    """A digest of all questions, where the case notes them."""

    def told(self) -> dict[str, Any]:
        """Keys of `eval_result`."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def summed(everyone: Sequence[Mapping[str, Sequence[float]]]) -> tuple[dict[str, float], dict[str, float]]:
    """({name: value}, {name: what it counts}) of {name: (numerator, denominator)} of every rank."""
    names = sorted(everyone[0])
    if any(sorted(other) != names for other in everyone):
        raise RunProblem("the ranks evaluated different metrics: Task.evaluate must name the same ones on every rank")
    shares = {name: [share[name] for share in everyone] for name in names}
    return (
        {name: _ratio(shares[name]) for name in names},
        {name: math.fsum(share[1] for share in shares[name]) for name in names},
    )


def _ratio(shares: Sequence[Sequence[float]]) -> float:
    bottom = math.fsum(share[1] for share in shares)
    return math.fsum(share[0] for share in shares) / bottom if bottom else math.nan


def meets(metrics: Mapping[str, float], quality: Mapping[str, Any]) -> bool:
    """Whether the case's own metric has reached its target; a number that is not finite never has."""
    name = quality["metric"]
    if name not in metrics:
        have = ", ".join(sorted(metrics)) or "none"
        raise RunProblem(f"Task.evaluate gives no {name!r}, which [quality] metric names (have: {have})")
    value = metrics[name]
    if not math.isfinite(value):
        return False
    target: float = quality["target"]
    return value >= target if quality["better"] == "higher" else value <= target
