"""Whether the device's memory is free again once a process has ended: a second one holds some, and is ended."""

import os
import select
import subprocess
import sys
import time

from suite.conformance.chip.pytorch.finding import Unobservable

MIB = 1 << 20
START_S = 120.0
END_S = 30.0
RETURN_S = 20.0
HELD = b"held\n"


class Holder:
    """A process that holds `mib` of the device of this rank, from `start` to `end`."""

    def __init__(self, local_rank, mib):
        self.mib = mib
        self._argv = [sys.executable, "-m", "suite.conformance.chip.pytorch.hold", str(local_rank), str(mib)]
        self._process = None

    def start(self):
        """Return once it holds the memory. Raises Unobservable where it cannot."""
        self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if not self._held():
            self.end()
            raise Unobservable("a second process cannot use the device; its own words are in the log of the rank")

    def _held(self):
        """Whether it says so in time, whatever else a library prints before."""
        said, due = b"", time.monotonic() + START_S
        while HELD not in said:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, due - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                return False
            said += more
        return True

    def end(self):
        """Return once it is gone."""
        self._process.kill()  # not asked to tidy up: a training that crashes does not either
        self._process.wait(timeout=END_S)
        self._process.stdin.close()
        self._process.stdout.close()


def kept_mib(device, holder, meet=lambda: None):
    """(MiB that are still taken after the holder's end, remark). `meet` waits for the other ranks."""
    before = device.free_bytes()
    meet()
    try:
        if before is None:
            raise Unobservable(
                "the memory of a host is everybody's"
                if device.is_host
                else f"torch.{device.type} does not say how much memory is free"
            )
        holder.start()
        try:
            held = (before - device.free_bytes()) / MIB
        finally:
            holder.end()
        if held < holder.mib / 2:
            raise Unobservable(f"another process took {holder.mib} MiB, and {held:.0f} MiB less were shown as free")
        kept = _kept(device, before)
    finally:
        meet()
    return kept, f"{held:.0f} MiB were held, {kept:.0f} MiB are still taken"


def _kept(device, before):
    due = time.monotonic() + RETURN_S
    while (kept := max(0.0, (before - device.free_bytes()) / MIB)) > 1.0 and time.monotonic() < due:
        time.sleep(0.2)
    return kept
