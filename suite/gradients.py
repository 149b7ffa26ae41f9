"""Whether a replaced part computes the same gradients: its rounding held beside that of the standard part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from suite.rounding import exact_sum

TENSOR = 2.0
"""The error of one tensor's gradient may be this many times that of the standard part."""
TOGETHER = 1.25
"""That of all gradients together."""
FLOOR = 1e-4
"""Errors below this share of the tensor are no difference."""
BLIND = 0.25
"""Where the standard part's own error is a larger share of the gradient, nothing can be told by it."""
ALONG = 5e-3
"""The length along the true gradient may differ by this share: what shortens all gradients alike is no rounding."""
ALONG_ERROR = 0.1
"""And by this share of the standard part's own error, of which some lies along the gradient by chance."""

CHANCE = 1.25
"""Draws of dropout may part gradients, squared, by this many times as much as the standard part's, or as little."""
STANDARD_ERRORS = 4.0
"""So many of the difference are left to the luck of the draws."""
UNTOLD = 3.0
"""Where that luck alone could be so many times as much, nothing can be told."""

KEYS = ("truth", "standard", "replaced", "standard_along", "replaced_along")
APART = ("loss", "buffer: ")
"""What is no gradient, and is held to the rule of single tensors alone."""


class Judged(NamedTuple):
    """What was found, for a person, and whether it is the same."""

    same: bool
    reasons: tuple[str, ...]
    """Why not; empty where it is the same."""
    replaced_error: float
    """Distance from float64, as a share of the gradient, over all tensors and batches."""
    standard_error: float
    shorter: float
    """Length along the true gradient: replaced less standard, as a share."""
    worst: str
    """The tensor whose error grew most, and how many times."""


def judge(sums: Mapping[str, Mapping[str, float]]) -> Judged:
    """Hold the sums of `suite.drivers.pytorch.gradients` to the rules above. Raises ValueError for what is no number.

    With t the gradient in float64, s and r those of the standard and of the replaced part in the plan's: per
    tensor |r - t| <= TENSOR |s - t| + FLOOR |t|, over all |r - t| <= TOGETHER |s - t| + FLOOR |t| and
    |r.t - s.t| <= (ALONG + ALONG_ERROR |s - t| / |t|) t.t, each over all batches.
    """
    read = {name: {key: _number(name, each, key) for key in KEYS} for name, each in sums.items()}
    reasons, worst = [], ("no tensor", 0.0)
    for name, each in read.items():
        error, standard, size = (math.sqrt(each[key]) for key in ("replaced", "standard", "truth"))
        if error > TENSOR * standard + FLOOR * size:
            reasons.append(
                f"{name}: error {_share(error, size)} of its size, the standard part's is {_share(standard, size)}"
            )
        usual = max(standard, FLOOR * size)
        if usual and not name.startswith(APART) and error > FLOOR * size and error / usual > worst[1]:
            worst = (name, error / usual)
    gradients = [each for name, each in read.items() if not name.startswith(APART)]
    total = {key: exact_sum(each[key] for each in gradients) for key in KEYS}
    if not total["truth"]:
        raise ValueError("all gradients are 0, so nothing can be told")
    error, standard, size = (math.sqrt(total[key]) for key in ("replaced", "standard", "truth"))
    if standard > BLIND * size:
        raise ValueError(
            f"the standard part's own error is {_share(standard, size)} of the gradient, in which any other drowns;"
            " take another preset, or --set precision=fp32"
        )
    shorter = (total["replaced_along"] - total["standard_along"]) / total["truth"]
    if error > TOGETHER * standard + FLOOR * size:
        reasons.append(f"all gradients: error {_share(error, size)}, the standard part's is {_share(standard, size)}")
    if abs(shorter) > ALONG + ALONG_ERROR * standard / size:
        reasons.append(f"all gradients: {100 * shorter:+.2f} % along the true one, beside the standard part")
    return Judged(
        not reasons, tuple(reasons), error / size, standard / size, shorter, f"{worst[0]}, {worst[1]:.3g} times"
    )


def judge_chance(found: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> list[str]:
    """Why replaced parts let chance in otherwise than the standard ones; empty: they do as they do.

    `found` is what `suite.drivers.pytorch.gradients` says of each dropout. With a the length of a draw along the
    gradient without chance and d the squared distance of two draws, both of the same batches, means over all of them:
    |mean(a_r - a_s)| <= ALONG + e and |mean(ln d_r / d_s)| <= ln CHANCE + e, where e is STANDARD_ERRORS of the mean.
    Raises ValueError where e leaves room for anything, and for what is no number.
    """
    reasons = []
    for key, sides in found.items():
        along, other_along = (_all_finite(key, side, sides[side]["along"]) for side in ("standard", "replaced"))
        apart, other_apart = (_all_finite(key, side, sides[side]["apart"]) for side in ("standard", "replaced"))
        if not (all(apart) and all(other_apart)):
            if any(apart) or any(other_apart):
                side = "standard" if any(apart) else "replaced"
                reasons.append(f"{key}: two draws of it part the gradients of the {side} part alone")
            continue
        ratios = [math.log(other / one) for one, other in zip(apart, other_apart, strict=True)]
        ratio, luck = _mean(ratios)
        if luck > math.log(UNTOLD):
            raise ValueError(f"{key}: the draws differ too much among themselves; take more --batches")
        if abs(ratio) > math.log(CHANCE) + luck:
            word = "more" if ratio > 0 else "less"
            reasons.append(
                f"{key}: two draws part the gradients {math.exp(ratio):.3g} times as far, squared, as with the standard"
                f" part: it drops {word} (the same is {1 / CHANCE:.2f} to {CHANCE:.2f} times)"
            )
        shift, luck = _mean([other - one for one, other in zip(along, other_along, strict=True)])
        if abs(shift) > ALONG + luck:
            reasons.append(f"{key}: {100 * shift:+.2f} % along the gradient without it, beside the standard part")
    return reasons


def _all_finite(key: str, side: str, values: Sequence[float]) -> list[float]:
    return [_finite(f"{key}, {side} part", value, "a draw") for value in values]


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """(mean, STANDARD_ERRORS of it); of one value nothing is known."""
    if len(values) < 2:
        raise ValueError("chance was looked at once only; take more --batches")
    return fmean(values), STANDARD_ERRORS * stdev(values) / math.sqrt(len(values))


def _number(name: str, each: Mapping[str, float], key: str) -> float:
    return _finite(name, each[key], key)


def _finite(name: str, value: float | str, key: str) -> float:
    if isinstance(value, str) or not math.isfinite(value):
        raise ValueError(f"{name}: {key} is {value}, not a finite number")
    return float(value)


def _share(error: float, size: float) -> str:
    return f"{100 * error / size:.3g} %" if size else f"{error:.3g} where it should be 0"
