"""From the host to the device: batches are built ahead by a thread, and copied on a side stream where there is one."""

from suite.drivers.ahead import Ahead

__all__ = ["Ahead", "Prefetcher"]


class Prefetcher:
    """Iterates over micro-batches with `batch` on the device. `close` ends the thread."""

    def __init__(self, micros, device, ahead):
        self._device = device
        self._stream = device.side_stream()
        pinned = (micro._replace(batch=device.pin(micro.batch)) for micro in micros)
        self._source = Ahead(pinned, ahead) if ahead else pinned

    def __iter__(self):
        return self

    def __next__(self):
        micro = next(self._source)
        if self._stream is None:
            return micro._replace(batch=self._device.to(micro.batch))
        return micro._replace(batch=self._device.copy_beside(micro.batch, self._stream))

    def close(self):
        """Stop building."""
        self._source.close()
