"""The answer of the equivalence test, for a person or a tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from reports import blocks
from reports.blocks import Block, Heading, Sentences, Table
from reports.equivalence import Equivalence
from reports.versus_text import LEGEND, differences, table


def blocks_of(report: Equivalence) -> Iterator[Block]:
    """Verdict first, then why, then what the figures are."""
    yield Heading(f"{report.b} against {report.a}: {report.verdict}", 1)
    rows = tuple((finding.name, finding.status, finding.text) for finding in report.findings)
    yield Table(("asked", "status", "found"), rows)
    yield Heading("What differs")
    yield from differences(report.duel)
    yield Heading("Figures")
    yield table(report.duel.lines)
    yield Sentences((LEGEND, *_proof(report)))


def _proof(report: Equivalence) -> Iterator[str]:
    for proof in report.proofs:
        yield f"proof: {proof.where}, slot {proof.slot}, code {proof.digest[:12]}"
    if report.verdict != "equivalent":
        yield "no proof: it is given to what passed every question above"


FORMATS: Mapping[str, Callable[[Equivalence], str]] = {
    "text": lambda report: blocks.as_text(list(blocks_of(report))),
    "md": lambda report: blocks.as_markdown(list(blocks_of(report))),
    "html": lambda report: blocks.as_html(list(blocks_of(report))),
    "json": lambda report: report.model_dump_json(indent=1),
}
