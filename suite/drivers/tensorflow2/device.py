"""The chip as the driver sees it. The only file of this driver that names a device API."""

import importlib
import os
import platform
import socket
import time

import numpy
import tensorflow as tf

from suite.drivers import host
from suite.drivers.tensorflow2.problem import EnvironmentProblem

COMMON = "GPU"
"""What TensorFlow calls the chips that it knows itself; a plug-in's kind is its type in capitals."""


class Device:
    """The device of this rank. Made by `Device.open`, before TensorFlow has touched any."""

    timer = "sync_clock"

    def __init__(self, spec, kind, index, physical):
        self.type, self.spec, self.kind, self.index = spec["type"], spec, kind, index
        self.is_host = kind == "CPU"
        self.physical = physical
        self.fallbacks = []
        self.on_fallback = None
        self._sync = getattr(tf.test.experimental, "sync_devices", None)
        if not self.is_host:
            self.fall_back("event_timing", "TensorFlow has no device events: every step is synchronised")
        self._details = {} if self.is_host else tf.config.experimental.get_device_details(physical)

    @classmethod
    def open(cls, spec, local_rank, threads):
        """The device of this local rank alone, with so many threads on the host (0: as TensorFlow has it)."""
        if plugin := spec.get("plugin", ""):
            try:
                importlib.import_module(plugin)
            except ImportError as problem:
                raise EnvironmentProblem(f"plug-in {plugin!r} cannot be imported ({problem}): install it") from problem
        if threads > 0:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        if spec["type"] == "cpu":
            for kind in {physical.device_type for physical in tf.config.list_physical_devices()} - {"CPU"}:
                tf.config.set_visible_devices([], kind)
            return cls(spec, "CPU", 0, tf.config.list_physical_devices("CPU")[0])
        kind = next((kind for kind in (spec["type"].upper(), COMMON) if tf.config.list_physical_devices(kind)), None)
        if kind is None:
            raise EnvironmentProblem(f"TensorFlow sees no {spec['type']} device: its driver or plug-in is missing here")
        devices = tf.config.list_physical_devices(kind)
        if local_rank >= len(devices):
            raise EnvironmentProblem(f"local rank {local_rank} has no device: {len(devices)} of {kind} are visible")
        tf.config.set_visible_devices(devices[local_rank], kind)
        tf.config.experimental.set_memory_growth(devices[local_rank], True)
        return cls(spec, kind, local_rank, devices[local_rank])

    @property
    def name_for_tensorflow(self):
        """Of the one visible device, as a strategy takes it."""
        return f"{self.kind}:0"

    def fall_back(self, what, why):
        """Record once that `what` is done in a lesser way, and why."""
        entry = {"what": what, "why": why}
        if entry not in self.fallbacks:
            self.fallbacks.append(entry)
            if self.on_fallback:
                self.on_fallback(entry)

    # Clock

    def synchronize(self):
        """Return when all work given to the device is done."""
        if self.is_host:
            return
        if self._sync:
            self._sync()
        else:
            tf.zeros(1).numpy()

    def stamp(self):
        """A point in time, after a synchronise."""
        self.synchronize()
        return time.perf_counter()

    @staticmethod
    def seconds(start, stop):
        """Between two stamps."""
        return stop - start

    # Facts

    @property
    def name(self):
        """As the chip calls itself."""
        if self.is_host:
            return host.processor()
        return str(self._details.get("device_name", self.physical.name))

    @property
    def identity(self):
        """What tells this device from all others: TensorFlow knows a place only."""
        if self.is_host:
            return socket.gethostname()
        self.fall_back("identity", "TensorFlow tells no serial number: host, place and the visible-devices variable")
        variable = self.spec.get("visible_devices", "")
        return f"{socket.gethostname()}/{os.environ.get(variable, '') if variable else ''}/{self.index}"

    def facts(self):
        """The header's `device`."""
        return {
            "type": self.type,
            "name": self.name,
            "identity": self.identity,
            "index": self.index,
            "memory_bytes": host.memory_bytes() if self.is_host else None,
        }

    def memory(self):
        """Keys of the `memory` event."""
        if self.is_host:
            return {"peak_bytes": host.peak_bytes(), "reserved_bytes": None}
        try:
            peak = tf.config.experimental.get_memory_info(self.name_for_tensorflow)["peak"]
        except (ValueError, RuntimeError) as problem:
            self.fall_back("max_memory_allocated", str(problem).splitlines()[0])
            peak = None
        return {"peak_bytes": peak, "reserved_bytes": None}


def versions():
    """The header's `versions`."""
    return {"tensorflow": tf.__version__, "numpy": numpy.__version__, "python": platform.python_version()}
