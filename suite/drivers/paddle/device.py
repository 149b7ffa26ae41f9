"""The chip as the driver sees it. The only file of this driver that names a device API.

The vendor's table `[device]` says type, plug-in, back end and identity. What the chip lacks is replaced by a named
fallback, recorded in `Device.fallbacks` and so in the header of every run.
"""

import contextlib
import importlib
import os
import platform
import socket
import time

import paddle

from suite.drivers import host
from suite.drivers.paddle.arrays import map_arrays
from suite.drivers.paddle.problem import EnvironmentProblem


class Device:
    """One chip of this rank. Made by `Device.open`; times, memory, random state and copies go through it."""

    def __init__(self, spec, kind, index, capabilities=None):
        self.spec, self.type, self.kind, self.index = spec, spec["type"], kind, index
        self.capabilities = capabilities or {}
        self.fallbacks = []
        self.on_fallback = None
        self.is_host = kind == "cpu"
        if kind != self.type:
            self.fall_back("device_type", f"paddle has no type {self.type!r}: its only chips, {kind!r}, are used")
        self._event = self._find_event()

    @classmethod
    def open(cls, spec, local_rank, capabilities=None):
        """The device of this local rank, selected and ready."""
        if plugin := spec.get("plugin", ""):
            try:
                importlib.import_module(plugin)
            except ImportError as problem:
                raise EnvironmentProblem(f"plug-in {plugin!r} cannot be imported ({problem}): install it") from problem
        kind = _kind(spec["type"])
        if kind == "cpu":
            paddle.set_device("cpu")
            return cls(spec, kind, 0, capabilities)
        count = sum(name.partition(":")[0] == kind for name in paddle.device.get_available_device())
        if local_rank >= count > 1 or not count:
            raise EnvironmentProblem(
                f"local rank {local_rank} has no device: {count} of type {kind!r} are visible; start fewer ranks"
            )
        index = 0 if count == 1 else local_rank
        paddle.set_device(f"{kind}:{index}")
        return cls(spec, kind, index, capabilities)

    def fall_back(self, what, why):
        """Record once that `what` is done in a lesser way, and why."""
        entry = {"what": what, "why": why}
        if entry not in self.fallbacks:
            self.fallbacks.append(entry)
            if self.on_fallback:
                self.on_fallback(entry)

    def can(self, capability):
        """False only where the chip's recorded capabilities deny it; that is a fallback."""
        if self.capabilities.get(capability, True):
            return True
        self.fall_back(capability, "the chip's recorded capabilities deny it")
        return False

    # Clock

    def _find_event(self):
        if self.is_host or not self.can("event_timing"):
            return None
        try:
            first, second = (paddle.device.Event(enable_timing=True) for _ in range(2))
            first.record()
            second.record()
            self.synchronize()
            if first.elapsed_time(second) >= 0:
                return paddle.device.Event
            why = "its events count backwards"
        except Exception as problem:  # a plug-in may raise anything at all
            why = f"its events do not time ({type(problem).__name__}: {problem})"
        self.fall_back("event_timing", f"{why}: every step is synchronised")
        return None

    @property
    def timer(self):
        """`device_events`, or `sync_clock`: the host's clock after a synchronise at every stamp."""
        return "device_events" if self._event else "sync_clock"

    @property
    def stamps_freely(self):
        """Whether a stamp waits for nothing: events, or a host, which does its work in line."""
        return self.is_host or self._event is not None

    def synchronize(self):
        """Return when all work given to the device is done; on the host it is done when a call returns."""
        if not self.is_host:
            paddle.device.synchronize()

    def stamp(self):
        """A point in the device's own time. Cheap with events; without them it waits for the device."""
        if self._event:
            event = self._event(enable_timing=True)
            event.record()
            return event
        self.synchronize()
        return time.perf_counter()

    def seconds(self, first, second):
        """Seconds from one stamp to a later one; valid after a synchronise."""
        if self._event:
            return max(0.0, first.elapsed_time(second) / 1000)
        return second - first

    # Precision

    def set_tf32(self, on):
        """Allow or forbid TF32 for products and convolutions, where this build of Paddle has a switch for it."""
        for name in ("set_cublas_switch", "set_cudnn_switch"):
            if hasattr(paddle.base.core, name):
                getattr(paddle.base.core, name)(on)

    def reads_tf32(self):
        """What the switches say now; None on the host, which has no such format."""
        names = ("get_cublas_switch", "get_cudnn_switch")
        states = [bool(getattr(paddle.base.core, name)()) for name in names if hasattr(paddle.base.core, name)]
        return any(states) if states and not self.is_host else None

    # Memory and copies

    def memory(self):
        """{"peak_bytes", "reserved_bytes"} since `reset_memory_peak`; of a host, its process's peak. None: unknown."""
        if self.is_host:
            return {"peak_bytes": host.peak_bytes(), "reserved_bytes": None}
        return {
            "peak_bytes": self._count("max_memory_allocated"),
            "reserved_bytes": self._count("max_memory_reserved"),
        }

    def _count(self, name):
        try:
            return int(getattr(paddle.device, name)())
        except Exception as problem:  # of a type that does not count
            self.fall_back(name, f"{problem}".splitlines()[0])
            return None

    def reset_memory_peak(self):
        """Count the peak from here."""
        if not self.is_host:
            with contextlib.suppress(ValueError, RuntimeError):
                paddle.device.reset_peak_memory_stats()

    @staticmethod
    def to(batch):
        """The nested arrays of `batch` as tensors on the device."""
        return map_arrays(paddle.to_tensor, batch)

    # Random state

    def rng_state(self):
        """The device's generators as plain values, for a checkpoint; None where there are none of its own."""
        if self.is_host or not self.can("rng_state"):
            return None
        return plain_states(paddle.get_rng_state())

    def set_rng_state(self, state):
        """Restore what `rng_state` gave."""
        if state is not None:
            paddle.set_rng_state(made_states(state))

    # Identity

    def facts(self):
        """The header's `device`: type, name, identity, index, memory_bytes."""
        return {
            "type": self.type,
            "name": self.name,
            "identity": self.identity,
            "index": self.index,
            "memory_bytes": self._memory_bytes(),
        }

    @property
    def name(self):
        """The chip's own name, as machines/*.toml match it."""
        return host.processor() if self.is_host else str(paddle.device.get_device_name())

    @property
    def identity(self):
        """What tells this chip from all others of its host."""
        if self.is_host:
            return socket.gethostname()
        self.fall_back("identity", "paddle shows no key of the chip: host, place and visible-devices variable are used")
        visible = os.environ.get(self.spec.get("visible_devices") or "", "")
        return f"{socket.gethostname()}/{self.kind}:{self.index}" + (f" of {visible}" if visible else "")

    def _memory_bytes(self):
        if self.is_host:
            return host.memory_bytes()
        total = getattr(paddle.device.get_device_properties(), "total_memory", None)
        return None if total is None else int(total)

    def versions(self):
        """Versions of Python and of Paddle, and of what the latter was built for, by its own names."""
        built = {key: value for key, value in vars(paddle.version).items() if key.endswith("_version")}
        told = {key: value for key, value in built.items() if isinstance(value, str) and value not in ("False", "None")}
        return {"python": platform.python_version(), "paddle": paddle.__version__, **told}


def plain_states(states):
    """Paddle's generators as plain values."""
    return [list(state.__getstate__()) for state in states]


def made_states(values):
    """Paddle's generators from what `plain_states` gave."""
    states = []
    for value in values:
        state = paddle.base.core.GeneratorState.__new__(paddle.base.core.GeneratorState)
        state.__setstate__(tuple(value))
        states.append(state)
    return states


def _kind(wanted):
    """What Paddle calls the plan's device type: the same, or the one type of chip that this build has."""
    known = [kind for kind in paddle.device.get_all_device_type() if kind != "cpu"]
    if wanted == "cpu" or wanted in known:
        return wanted
    if len(known) == 1:
        return known[0]
    raise EnvironmentProblem(
        f"paddle {paddle.__version__} has no device type {wanted!r} (have: {', '.join(known) or 'cpu'}): install the"
        " build or the plug-in for this chip"
    )
