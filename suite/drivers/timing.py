"""The clock of a window of steps: rank-local, a synchronise at both ends, none at a step where events time.

Stamps lie at step boundaries and around every wait for data. Windows touch: the next one starts where the last one
ended, so that what the loop does between them is counted, unless an evaluation or a checkpoint lies between.
"""

from __future__ import annotations

import time
from typing import Any


class WindowClock:
    """Times the steps of one window after another: `start`, then `waited` and `stepped` in turn, then `close`."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._boundary: Any = None
        self._opened = 0.0
        self._waits: list[tuple[Any, Any]] = []
        self._forwards: list[tuple[Any, Any]] = []
        self._steps: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []
        self._forward_steps: list[list[tuple[Any, Any]]] = []

    def start(self) -> None:
        """Open a window now: waits for the device. Call it again after what must not be counted."""
        self._device.synchronize()
        self._boundary = self._device.stamp()
        self._opened = _host_time(self._boundary)
        self._fetching = self._boundary

    def fetch(self) -> None:
        """A wait for data begins now, not at the last boundary."""
        self._fetching = self._device.stamp()

    def waited(self) -> None:
        """The data is there."""
        self._waits.append((self._fetching, self._device.stamp()))

    def forwarded(self) -> None:
        """The forward pass on that data was given to the device: work that no other rank takes part in."""
        self._forwards.append((self._waits[-1][1], self._device.stamp()))

    def stepped(self) -> None:
        """An optimizer step was given to the device; the next step begins."""
        stop = self._device.stamp()
        self._steps.append((self._boundary, stop, self._waits))
        self._forward_steps.append(self._forwards)
        self._boundary = self._fetching = stop
        self._waits, self._forwards = [], []

    def close(self) -> dict[str, Any]:
        """{"step_s", "data_s", "window_s", "until"} of the steps since the last close. Waits for the device.

        With `forward_s` where forward passes were told. `until` is when the window ended, on the clock of the events'
        `t`: the line itself is written later, on a busy host much later.
        """
        self._device.synchronize()
        now = _host_time(self._boundary)
        seconds = self._device.seconds
        steps = [seconds(start, stop) for start, stop, _ in self._steps]
        data = [min(step, sum(seconds(*wait) for wait in waits)) for step, (_, _, waits) in zip(steps, self._steps)]
        forward = [sum(seconds(*one) for one in step) for step in self._forward_steps]
        window = now - self._opened
        self._steps, self._forward_steps = [], []
        self._opened = now
        told = {"forward_s": [round(step, 7) for step in forward]} if any(forward) else {}
        return {
            **told,
            "step_s": [round(step, 7) for step in steps],
            "data_s": [round(wait, 7) for wait in data],
            "window_s": round(window, 7),
            "until": round(now, 7),
        }


def _host_time(stamp: Any) -> float:
    """Of the end that the stamp marks: a second reading would count as training what a busy host did in between."""
    return stamp if isinstance(stamp, float) else time.perf_counter()
