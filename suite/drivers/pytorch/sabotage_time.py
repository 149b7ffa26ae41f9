"""Time broken on purpose: steps that take longer, and a clock that does not wait."""

import sys
import time

from suite.drivers.pytorch.sound import Sound
from suite.drivers.timing import WindowClock

SLOWER = 0.1
"""Share of a step that the slow rank adds to each."""
HOTTEST = 3.0
"""Share of a step that the last one of a throttled run takes more."""


class SlowRank(Sound):
    """The last rank takes 10 % longer for each step."""

    def task(self, task):
        if task.world_size > 1 and task.rank == task.world_size - 1:
            delay(task, lambda step: SLOWER)


class ThermalSlowdown(Sound):
    """Steps grow slower and slower, in the end four times as slow."""

    def task(self, task):
        steps = task.params["throughput_warmup_steps"] + task.params["throughput_steps"]
        delay(task, lambda step: HOTTEST * step / (steps * task.params["gradient_accumulation_steps"]))


def delay(task, share):
    """Make each micro-batch's loss take `share(its number)` of a step longer."""
    loss, calls, since = task.loss, iter(range(1, sys.maxsize)), []

    def slower(model, batch):
        value = loss(model, batch)
        task.device.synchronize()
        if since:
            time.sleep(share(next(calls)) * (time.perf_counter() - since.pop()))
        since.append(time.perf_counter())
        return value

    task.loss = slower


class LaunchClock(WindowClock):
    """Reads the host's clock when work is handed over; what the device then still does lies in no window."""

    def __init__(self, device):
        super().__init__(Unsynchronised())
        # A host does its work in the call that hands it over.
        self._in_line = device.is_host
        self._closed = False

    def fetch(self):
        """As ever; after a window's end, the next one begins only here."""
        super().fetch()
        if self._closed:
            self._boundary, self._closed = self._fetching, False

    def stepped(self):
        """The step ends where its work was handed over."""
        now = self._device.stamp()
        stop = self._waits[-1][1] if self._in_line else now
        self._steps.append((self._boundary, stop, self._waits))
        self._boundary = self._fetching = now
        self._waits = []

    def close(self):
        """Waits for nothing."""
        times = super().close()
        self._closed = True
        return {**times, "window_s": sum(times["step_s"])}


class Unsynchronised:
    """A device's clock without a synchronise."""

    def synchronize(self):
        """Return at once."""

    def stamp(self):
        """The host's own time."""
        return time.perf_counter()

    @staticmethod
    def seconds(start, stop):
        """Between two stamps."""
        return stop - start
