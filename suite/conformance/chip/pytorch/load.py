"""Rest and load, for the harness's monitor to see both."""

import time

from suite.conformance.chip.pytorch.clocks import Products


def rest_and_load(device, rest_s, load_s):
    """((begin, end) of a rest, (begin, end) of a load) in seconds of the event stream's clock."""
    work = Products(device)
    device.synchronize()
    rest = _spent(rest_s, lambda: time.sleep(0.05))
    return rest, _spent(load_s, lambda: (work.start(), work.finish()))


def _spent(seconds, act):
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        act()
    return [round(begin, 6), round(time.monotonic(), 6)]
