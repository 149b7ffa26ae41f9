"""Updates of torch's optimizers: the loss scaler may have a fused one skip inside its kernel."""

from suite.drivers import updates


class Updates(updates.Updates):
    """Counts the calls of `optimizer.step`, and how many of them skipped inside.

    A hook of torch's would be called for each step that a step calls, and never for an optimizer that is not derived
    from torch's own. `uncounted`: torch makes a step with a learning rate of 0 to see an optimizer's state.
    """

    remedy = "derive it from torch.optim.Optimizer"

    def __init__(self, optimizer, zero=None):
        self._found = zero
        """A loss scaler's: how often a fused optimizer was called and skipped inside its kernel. None: no scaler."""
        super().__init__(optimizer)

    def _count(self):
        super()._count()
        found = getattr(self._optimizer, "found_inf", None)
        if found is not None and self._found is not None:
            self._found += found.reshape(()).to(self._found.device)

    def take_found(self):
        """Calls that skipped inside, since the last time. With a scaler it waits for the device."""
        if self._found is None:
            return 0
        found = round(float(self._found.cpu()))
        self._found.zero_()
        return found
