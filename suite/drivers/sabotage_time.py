"""Time broken on purpose: steps that take longer, and a clock that does not wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from suite.drivers.sound import Sound
from suite.drivers.timing import WindowClock

SLOWER = 0.1
"""Share of a step that the slow rank adds to each."""
HOTTEST = 3.0
"""Share of a step that the last one of a throttled run takes more."""


class SlowRank(Sound):
    """The last rank takes 10 % longer for each step."""

    def task(self, task: Any) -> None:
        if task.world_size > 1 and task.rank == task.world_size - 1:
            task.loss = delayed(task.loss, task.device, lambda step: SLOWER)


class ThermalSlowdown(Sound):
    """Steps grow slower and slower, in the end four times as slow."""

    def task(self, task: Any) -> None:
        task.loss = delayed(task.loss, task.device, warming(task.params, task.params["gradient_accumulation_steps"]))


def warming(params: Any, calls: int) -> Callable[[int], float]:
    """The share of a step to add to a call of its number, of so many calls a step."""
    steps = params["throughput_warmup_steps"] + params["throughput_steps"]
    return lambda number: HOTTEST * number / (steps * calls)


def delayed(work: Callable[..., Any], device: Any, share: Callable[[int], float]) -> Callable[..., Any]:
    """`work`, each call of which takes `share(its number)` of what lies between two calls longer."""
    calls, since = iter(range(1, sys.maxsize)), list[float]()

    def slower(*words: Any) -> Any:
        value = work(*words)
        device.synchronize()
        if since:
            time.sleep(share(next(calls)) * (time.perf_counter() - since.pop()))
        since.append(time.perf_counter())
        return value

    return slower


class TimerUnsynchronised(Sound):
    """A step's clock is read when its work is handed over, not when it is done."""

    def loop(self, loop: Any) -> None:
        loop.clock = LaunchClock(loop.device)


class LaunchClock(WindowClock):
    """Reads the host's clock when work is handed over; what the device then still does lies in no window."""

    def __init__(self, device: Any) -> None:
        super().__init__(Unsynchronised())
        # A host does its work in the call that hands it over.
        self._in_line = device.is_host
        self._closed = False

    def fetch(self) -> None:
        """As ever; after a window's end, the next one begins only here."""
        super().fetch()
        if self._closed:
            self._boundary, self._closed = self._fetching, False

    def stepped(self) -> None:
        """The step ends where its work was handed over."""
        now = self._device.stamp()
        stop = self._waits[-1][1] if self._in_line else now
        self._steps.append((self._boundary, stop, self._waits))
        self._boundary = self._fetching = now
        self._waits = []

    def close(self) -> dict[str, Any]:
        """Waits for nothing."""
        times = super().close()
        self._closed = True
        return {**times, "window_s": sum(times["step_s"])}


class Unsynchronised:
    """A device's clock without a synchronise."""

    def synchronize(self) -> None:
        """Return at once."""

    def stamp(self) -> float:
        """The host's own time."""
        return time.perf_counter()

    @staticmethod
    def seconds(start: float, stop: float) -> float:
        """Between two stamps."""
        return stop - start
