"""chrF (Popović, 2015): the F-score of character n-grams, recall counting twice as much; from 0 to 100.

Counted over a whole corpus and without blanks, n from 1 to 6, as the field's standard tool does by default. The counts
of parts of a corpus add up, so ranks may share it in any way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

ORDER = 6
BETA = 2
Counts = tuple[tuple[int, int, int], ...]
"""For each n: n-grams of the hypotheses, of the references, and in both."""


def counts(hypothesis: str, reference: str) -> Counts:
    """The n-grams of one sentence. Those of a hypothesis do not count where its reference is too short to have any."""
    ours, theirs = "".join(hypothesis.split()), "".join(reference.split())
    found = []
    for n in range(1, ORDER + 1):
        mine, wanted = _ngrams(ours, n), _ngrams(theirs, n)
        found.append((mine.total() if wanted else 0, wanted.total(), (mine & wanted).total()))
    return tuple(found)


def add(parts: Iterable[Counts]) -> Counts:
    """The counts of a corpus from those of its parts."""
    total = [(0, 0, 0)] * ORDER
    for part in parts:
        total = [tuple(a + b for a, b in zip(*pair)) for pair in zip(total, part)]
    return tuple(total)


def score(total: Counts) -> float:
    """The F-score of mean precision and mean recall over those n of which both sides have n-grams; 0 if none has."""
    rates = [(match / mine, match / wanted) for mine, wanted, match in total if mine and wanted]
    if not rates:
        return 0.0
    precision, recall = (sum(side) / len(rates) for side in zip(*rates))
    if precision + recall == 0:
        return 0.0
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def corpus(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """chrF of a whole corpus at once."""
    return score(add(map(counts, hypotheses, references)))


def _ngrams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))
