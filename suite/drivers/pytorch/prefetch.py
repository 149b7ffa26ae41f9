"""From the host to the device: batches are built ahead by a thread, and copied on a side stream where there is one."""

import queue
import threading

WAIT_S = 1800
"""The longest wait for one batch: past it the loader hangs."""
_END = object()


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


class Ahead:
    """An iterator that a thread keeps up to `depth` items ahead; its exceptions are raised where they are due."""

    def __init__(self, source, depth):
        self._source = source
        self._queue = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="batches", daemon=True)
        self._thread.start()

    def _fill(self):
        try:
            for item in self._source:
                if not self._put((item, None)):
                    return
            self._put((_END, None))
        except BaseException as problem:  # handed to the consumer, whatever it is
            self._put((_END, problem))

    def _put(self, entry):
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self):
        return self

    def __next__(self):
        try:
            item, problem = self._queue.get(timeout=WAIT_S)
        except queue.Empty:
            raise TimeoutError(f"no training batch came within {WAIT_S} s: the case's train_batches hangs") from None
        if problem is not None:
            raise problem
        if item is _END:
            raise StopIteration
        return item

    def close(self):
        """End the thread; waits for the batch that it is building, up to 5 s."""
        self._stop.set()
        self._thread.join(timeout=5)
