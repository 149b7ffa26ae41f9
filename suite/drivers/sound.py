"""A sound run: every place where one that is broken on purpose differs, once, before the loop begins.

Standard library only, as all of the seams that know no framework: each driver calls them at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Sound:
    """Nothing is broken."""

    averages = True
    """Whether the ranks exchange gradients."""
    needs_data = False
    """Whether random batches, which nobody compares, would not show it."""

    def spec(self, spec: Any) -> Any:
        """run.json as this rank takes it."""
        return spec

    def place(self, place: Any) -> Any:
        """Where this rank stands."""
        return place

    def watch(self, writer: Any, spec: Any, place: Any) -> None:
        """Change the event writer."""

    def data_rank(self, rank: int) -> int:
        """Whose data this rank trains on."""
        return rank

    def task(self, task: Any) -> None:
        """Change the task, before its data is open."""

    def parts(self, parts: Any, precision: Any, place: Any) -> None:
        """Change what was assembled, behind the header."""

    def micros(self, micros: Iterator[Any], task: Any) -> Iterator[Any]:
        """The training's micro-batches."""
        return micros

    def loop(self, loop: Any) -> None:
        """Change the loop, before it starts."""
