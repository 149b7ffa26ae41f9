"""Word error rate: how many words must be changed, left out or put in, of how many that were said."""

from __future__ import annotations

from collections.abc import Sequence


def word_errors(said: Sequence[str], written: Sequence[str]) -> int:
    """The least number of substitutions, deletions and insertions that make `written` of `said` (Levenshtein)."""
    row = list(range(len(written) + 1))
    for place, word in enumerate(said, 1):
        diagonal, row[0] = row[0], place
        for i, other in enumerate(written, 1):
            kept = diagonal + (word != other)
            diagonal = row[i]
            row[i] = min(kept, row[i] + 1, row[i - 1] + 1)
    return row[-1]
