"""What an evaluation asks, in a few bytes: so that one that asks other things than it should is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from suite.drivers.array_fingerprint import of_arrays

_DIGITS = 16
_MOST = 1 << 4 * _DIGITS
Ask = Callable[..., None]
"""A Task's `asks`, in the hands of a data set: called for each question when it is drawn."""


def unheard(*question: Any) -> None:
    """For who draws questions and does not evaluate."""


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


class Asking:
    """What every framework's Task has for its questions."""

    asked: Asked | None = None
    """Set by the driver for an evaluation."""

    def asks(self, *question: Any) -> None:
        """To be called by `evaluate` for each thing it asks, with what that is known by: so the verdict knows it too.

        Plain values and NumPy arrays as they lie in the data, the same on every machine: words, whole numbers, the
        name of a file and its label; nothing computed in floating point.
        """
        if self.asked is not None:
            self.asked.note(question)


def together(shares: Iterable[str | None]) -> str | None:
    """`asked` of `eval_result` from what every rank told: one that asked nothing, of a small set, adds nothing.

    None where no rank noted anything, or one of them something that cannot be read.
    """
    told = [share for share in shares if share is not None]
    if not all(told):
        return None
    return f"{sum(int(share, 16) for share in told) % _MOST:0{_DIGITS}x}" if told else None
