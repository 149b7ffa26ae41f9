"""Batches built ahead by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

WAIT_S = 1800
"""The longest wait for one batch: past it the loader hangs."""
_END = object()
Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """An iterator that a thread keeps up to `depth` items ahead; its exceptions are raised where they are due."""

    def __init__(self, source: Iterator[Item], depth: int) -> None:
        self._source = source
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="batches", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            for item in self._source:
                if not self._put((item, None)):
                    return
            self._put((_END, None))
        except BaseException as problem:  # handed to the consumer, whatever it is
            self._put((_END, problem))

    def _put(self, entry: tuple[Any, BaseException | None]) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Ahead[Item]:
        return self

    def __next__(self) -> Item:
        try:
            item, problem = self._queue.get(timeout=WAIT_S)
        except queue.Empty:
            raise TimeoutError(f"no training batch came within {WAIT_S} s: the case's train_batches hangs") from None
        if problem is not None:
            raise problem
        if item is _END:
            raise StopIteration
        return cast(Item, item)

    def close(self) -> None:
        """End the thread; waits for the batch that it is building, up to 5 s."""
        self._stop.set()
        self._thread.join(timeout=5)
