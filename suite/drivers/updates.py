"""How often an optimizer changed the model, counted around the optimizer's own step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from suite.drivers.events import RunProblem


class Updates:
    """Counts the calls of an optimizer's step, whoever makes them: one that is left out, or made in secret, shows.

    A step that calls others (of the class it is derived from, of optimizers that it holds) is one update.
    """

    method = "step"
    """What the framework calls it."""
    remedy = "let it be set on the object"

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._made, self._depth = optimizer, 0, 0
        step = getattr(optimizer, self.method)

        @functools.wraps(step)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                made = step(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                self._count()
            return made

        try:
            setattr(optimizer, self.method, counted)
        except AttributeError as problem:
            raise RunProblem(
                f"slot optimizer: the updates of a {type(optimizer).__name__} cannot be counted ({problem}):"
                f" {self.remedy}"
            ) from problem

    def _count(self) -> None:
        self._made += 1

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Steps in here change nothing."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def take(self) -> int:
        """Calls since the last time."""
        made, self._made = self._made, 0
        return made
