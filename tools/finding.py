"""What a check of a folder finds: a file, what is wrong with it, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from suite.errors import UsageProblem

ELSEWHERE = "docs/configuration.md has every key"
"""The remedy of a sentence that names none itself."""


class Finding(NamedTuple):
    """One remark of a reviewer."""

    file: str
    """As a person finds it: below the checkout, or as it is."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        text = f"{self.file}: {self.problem}; {self.remedy}"
        # Names of files are a stranger's words: none begins a line of its own, or speaks to the terminal.
        return "".join(character if character.isprintable() else "?" for character in text)


def told(problem: UsageProblem, file: str) -> Finding:
    """A sentence of the harness as a finding; where it names no file, it is about `file`."""
    text = str(problem)
    name, colon, rest = text.partition(": ")
    if not colon or " " in name or not any(mark in name for mark in "./"):
        name, rest = file, text
    what, semicolon, remedy = rest.rpartition("; ")
    return Finding(name, what, remedy) if semicolon else Finding(name, rest, ELSEWHERE)


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Each one once, sorted by file: many plans can meet one mistake."""
    return sorted(set(findings))
