"""Updates of an optimizer whose step is compiled: counted by the compiled step itself, where it is carried out."""

import tensorflow as tf

from suite.drivers import updates


class Updates(updates.Updates):
    """Counts how often `optimizer.apply` was carried out. Made inside the strategy's scope, as the optimizer.

    Python sees a compiled step once, when it is traced: what counts is a variable that the step adds to.
    """

    method = "apply"

    def __init__(self, optimizer):
        self._carried_out = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self._told = 0
        super().__init__(optimizer)

    def _count(self):
        self._carried_out.assign_add(1)

    def take(self):
        """Carried out since the last time. Waits for the device."""
        last, self._told = self._told, int(self._carried_out.numpy())
        return self._told - last
