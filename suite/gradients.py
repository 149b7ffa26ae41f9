"""Whether a replaced part computes the same gradients: its rounding held beside that of the standard part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

TENSOR = 2.0
"""The error of one tensor's gradient may be this many times that of the standard part."""
TOGETHER = 1.25
"""That of all gradients together."""
FLOOR = 1e-3
"""Errors below this share of the tensor are no difference."""
BLIND = 0.25
"""Where the standard part's own error is a larger share of the gradient, nothing can be told by it."""
ALONG = 5e-3
"""The length along the true gradient may differ by this share: what shortens all gradients alike is no rounding."""
ALONG_ERROR = 0.1
"""And by this share of the standard part's own error, of which some lies along the gradient by chance."""

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
    total = {key: sum(each[key] for each in gradients) for key in KEYS}
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


def _number(name: str, each: Mapping[str, float], key: str) -> float:
    value = each[key]
    if isinstance(value, str) or not math.isfinite(value):
        raise ValueError(f"{name}: {key} is {value}, not a finite number")
    return float(value)


def _share(error: float, size: float) -> str:
    return f"{100 * error / size:.3g} %" if size else f"{error:.3g} where it should be 0"
