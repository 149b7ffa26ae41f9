"""The one exception for mistakes of the user: a sentence that names file, key or host, the value, and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageProblem(Exception):
    """Bad input. `str()` is one clean sentence; the caller prints it and exits 4, never a traceback."""


def did_you_mean(word: str, known: Iterable[str], *, label: str = "have") -> str:
    """` (did you mean 'seed'?)`, or the list of what there is: ` (have: bert, glm)`."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" ({label}: {', '.join(names)})" if names else f" ({label}: none)"
