"""How often an optimizer changed the model, counted around the optimizer's own step."""

import contextlib
import functools

from suite.drivers.events import RunProblem


class Updates:
    """Counts the calls of `optimizer.step`, whoever makes them: one that is left out, or made in secret, shows.

    A step that calls others (of the class it is derived from, of optimizers that it holds) is one update. A hook of
    torch's would be called for each of these, and never for an optimizer that is not derived from torch's own.
    """

    def __init__(self, optimizer, zero=None):
        self._optimizer, self._made, self._depth = optimizer, 0, 0
        self._found = zero
        """A loss scaler's: how often a fused optimizer was called and skipped inside its kernel. None: no scaler."""
        step = optimizer.step

        @functools.wraps(step)
        def counted(*args, **kwargs):
            self._depth += 1
            try:
                made = step(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0:
                self._count()
            return made

        try:
            optimizer.step = counted
        except AttributeError as problem:
            raise RunProblem(
                f"slot optimizer: the updates of a {type(optimizer).__name__} cannot be counted ({problem}): derive it"
                " from torch.optim.Optimizer"
            ) from problem

    def _count(self):
        self._made += 1
        found = getattr(self._optimizer, "found_inf", None)
        if found is not None and self._found is not None:
            self._found += found.reshape(()).to(self._found.device)

    @contextlib.contextmanager
    def uncounted(self):
        """Steps in here change nothing: torch makes one, with a learning rate of 0, to see an optimizer's state."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def take(self):
        """(calls, those of them that skipped inside) since the last time. With a scaler it waits for the device."""
        made, found = self._made, 0
        self._made = 0
        if self._found is not None:
            found = round(float(self._found.cpu()))
            self._found.zero_()
        return made, found
