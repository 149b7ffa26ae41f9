"""What an evaluation asks, in a few bytes: so that one that asks other things than it should is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from suite.drivers.array_fingerprint import of_arrays

_DIGITS = 16
_MOST = 1 << 4 * _DIGITS


class Asked:
    """The questions of one evaluation: a sum of fingerprints, equal in whatever order and by however many ranks."""

    def __init__(self) -> None:
        self._sum: int | None = None
        self._readable = True

    def note(self, question: Any) -> None:
        """One more is asked: what it is known by, as nested plain values and NumPy arrays."""
        mark = of_arrays(question)
        if mark is None:
            self._readable = False
        else:
            self._sum = ((self._sum or 0) + int.from_bytes(mark, "big")) % _MOST

    @property
    def told(self) -> str | None:
        """For `together`: hexadecimal digits; None where nothing was noted; empty where that cannot be read."""
        if not self._readable:
            return ""
        return None if self._sum is None else f"{self._sum:0{_DIGITS}x}"


def together(shares: Iterable[str | None]) -> str | None:
    """`asked` of `eval_result` from what every rank told: one that asked nothing, of a small set, adds nothing.

    None where no rank noted anything, or one of them something that cannot be read.
    """
    told = [share for share in shares if share is not None]
    if not all(told):
        return None
    return f"{sum(int(share, 16) for share in told) % _MOST:0{_DIGITS}x}" if told else None
