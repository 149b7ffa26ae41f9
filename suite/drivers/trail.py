"""What was trained on, in a few bytes: so that data trained on twice, or by two ranks, is told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

REMEMBERED = 1 << 17
"""Micro-batches of an epoch; of a longer one, the rest is not compared."""


def marked(micros: Iterator[Any], fingerprint: Callable[[Any], bytes | None]) -> Iterator[Any]:
    """The same micro-batches with their fingerprints."""
    for micro in micros:
        yield micro._replace(mark=fingerprint(micro.batch))


class Trail:
    """The fingerprints of a rank's training, window by window."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._seen: set[bytes] = set()
        self._start()

    def _start(self) -> None:
        self._window, self._repeated, self._any = hashlib.blake2b(digest_size=8), 0, False

    def note(self, micro: Any) -> None:
        """One more micro-batch is trained on."""
        if micro.mark is None:
            return
        if micro.epoch != self._epoch:
            self._epoch = micro.epoch
            self._seen.clear()
        self._any = True
        self._window.update(micro.mark)
        self._repeated += micro.mark in self._seen
        if len(self._seen) < REMEMBERED:
            self._seen.add(micro.mark)

    def take(self) -> dict[str, Any]:
        """`data` and `repeated` of the window that ends; nothing where batches are random ones."""
        told = {"data": self._window.hexdigest(), "repeated": self._repeated} if self._any else {}
        self._start()
        return told
