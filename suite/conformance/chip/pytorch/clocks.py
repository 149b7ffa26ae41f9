"""Whether this chip's time can be trusted: synchronise waits, stamps go forward, events agree with the host."""

import itertools
import time

import torch

from suite.conformance.chip.pytorch.finding import Unobservable

LEAST_S = 0.25
"""Work shorter than this cannot be told from the noise of a host."""
MOST_REPEATS = 1 << 14
TRIES = 3
"""The best of so many counts: a busy host disturbs, and never helps."""
READINGS = 2000
STAMPS = 50
SLACK_S = 2e-3


class Products:
    """A long kernel: products one after another. `start` gives it to the device, `finish` has its result on the host.

    That a number has arrived is the only proof of an end that does not rest on the chip's own synchronise.
    """

    def __init__(self, device, repeats=None):
        self._device = device
        size = 256 if device.is_host else 2048
        mirror = torch.nn.functional.normalize(torch.randn(size, 1, generator=torch.Generator().manual_seed(5)), dim=0)
        # A reflection: however often it is applied, no number grows or vanishes, for either would change the speed.
        self._factor = (torch.eye(size) - 2 * mirror @ mirror.T).to(device.torch_device)
        self._repeats = repeats or self._calibrated()

    def start(self):
        """Give the work to the device."""
        self._result = self._factor
        for _ in range(self._repeats):
            self._result = self._result @ self._factor

    def finish(self):
        """Return once a number of the result is on the host."""
        return float(self._result[0, 0].cpu())

    def _calibrated(self):
        self._repeats = 4
        self._timed()  # the first one chooses kernels
        while (spent := min(self._timed() for _ in range(TRIES))) < LEAST_S and self._repeats < MOST_REPEATS:
            self._repeats = min(MOST_REPEATS, max(2 * self._repeats, int(1.3 * self._repeats * LEAST_S / spent)))
        return self._repeats

    def _timed(self):
        begin = time.perf_counter()
        self.start()
        self.finish()
        return max(time.perf_counter() - begin, 1e-6)


def late_share(device, work):
    """(share of the work's time that a reader still waits after a synchronise, remark): nearly 0 where it waits."""
    tries = []
    for _ in range(TRIES):
        device.synchronize()
        begin = time.perf_counter()
        work.start()
        given = time.perf_counter()
        device.synchronize()
        said = time.perf_counter()
        work.finish()
        end = time.perf_counter()
        whole = end - begin
        tries.append(((end - said) / whole, whole, (given - begin) / whole))
    longest = max(whole for _, whole, _ in tries)
    if longest < LEAST_S / 5:
        raise Unobservable(f"the longest work that could be given took {longest * 1000:.1f} ms only")
    share, whole, given = min(entry for entry in tries if entry[1] >= LEAST_S / 5)
    return share, f"{whole * 1000:.0f} ms of work, {given:.0%} of it before the launch returned"


def timer_faults(device, act=None):
    """(how many readings went back, remark): of the host's clocks, and of the device's stamps against their sum.

    `act` is what lies between two stamps; without one, a little arithmetic.
    """
    act = act or (lambda: (torch.ones(64, 64, device=device.torch_device) * 2).sum())
    faults = 0
    for clock in (time.perf_counter, time.monotonic):
        readings = [clock() for _ in range(READINGS)]
        faults += sum(later < earlier for earlier, later in itertools.pairwise(readings))
    device.synchronize()
    stamps = []
    for _ in range(STAMPS):
        stamps.append(device.stamp())
        act()
    device.synchronize()
    parts = [device.seconds(first, second) for first, second in itertools.pairwise(stamps)]
    whole = device.seconds(stamps[0], stamps[-1])
    faults += sum(part < 0 for part in parts)
    # The driver counts a step back as nothing: it shows in the sum.
    faults += abs(sum(parts) - whole) > SLACK_S + 0.01 * whole
    return float(faults), f"{device.timer}, resolution of the host {time.get_clock_info('perf_counter').resolution:g} s"


def event_error(device, work):
    """(relative difference of device events and host clock over the same work, remark)."""
    if device.timer != "device_events":
        why = [entry["why"] for entry in device.fallbacks if entry["what"] == "event_timing"]
        raise Unobservable(why[0] if why else "the host computes in line: its own clock is the device's")
    errors = []
    for _ in range(TRIES):
        device.synchronize()
        begin = time.perf_counter()
        first = device.stamp()
        work.start()
        second = device.stamp()
        device.synchronize()
        work.finish()
        host = time.perf_counter() - begin
        errors.append((abs(host - device.seconds(first, second)) / host, host))
    error, host = min(errors)
    return error, f"{host * 1000:.0f} ms by the host's clock"
