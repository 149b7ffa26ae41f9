"""The chip as the driver sees it. The only file that names a device API: everything else holds a `Device`.

The vendor's table `[device]` says type, plug-in, back end and identity. What the chip's torch module lacks is
replaced by a named fallback, recorded in `Device.fallbacks` and so in the header of every run.
"""

import contextlib
import importlib
import os
import platform
import socket
import time
import warnings

import torch

from suite.drivers.pytorch import host
from suite.drivers.pytorch.tensors import map_tensors


class EnvironmentProblem(Exception):
    """What is here is not what the plan asked for: one sentence; the run ends as `environment`."""


class Device:
    """One chip of this rank. Made by `Device.open`; times, memory, random state and copies go through it."""

    def __init__(self, spec, index, module, capabilities=None):
        self.spec = spec
        self.type = spec["type"]
        self.index = index
        self.module = module
        self.backend = spec["backend"]
        self.capabilities = capabilities or {}
        self.fallbacks = []
        self.on_fallback = None
        self.is_host = self.type == "cpu"
        self.torch_device = torch.device("cpu") if self.is_host else torch.device(self.type, index)
        self._accelerator = None if self.is_host else getattr(torch, "accelerator", None)
        self._synchronize = self._find_synchronize()
        self._event = self._find_event()
        self._streams = self._find_streams()
        self._pinning = not self.is_host and self.can("pinned_memory")
        self._keep_off_attention_kernels()

    @classmethod
    def open(cls, spec, local_rank, module=None, capabilities=None):
        """The device of this local rank, selected and ready. `module` stands in for torch's own (tests)."""
        plugin = spec.get("plugin", "")
        if plugin:
            try:
                importlib.import_module(plugin)
            except ImportError as problem:
                raise EnvironmentProblem(f"plug-in {plugin!r} cannot be imported ({problem}): install it") from problem
        module = module or _module(spec["type"])
        index = 0 if spec["type"] == "cpu" else _index(spec, module, local_rank)
        if hasattr(module, "set_device") and spec["type"] != "cpu":
            module.set_device(index)
        return cls(spec, index, module, capabilities)

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

    def _find_synchronize(self):
        if self.is_host:
            return lambda: None
        if hasattr(self.module, "synchronize"):
            return self.module.synchronize
        if hasattr(self._accelerator, "synchronize"):
            self.fall_back("synchronize", f"torch.{self.type} has none: torch.accelerator's is used")
            return self._accelerator.synchronize
        self.fall_back("synchronize", f"torch.{self.type} has none: one element is copied to the host")
        return lambda: torch.zeros(1, device=self.torch_device).cpu()

    def _find_event(self):
        if self.is_host or not self.can("event_timing"):
            return None
        make = getattr(self.module, "Event", None) or getattr(torch, "Event", None)
        try:
            first, second = make(enable_timing=True), make(enable_timing=True)
            first.record()
            second.record()
            self.synchronize()
            if first.elapsed_time(second) >= 0:
                return make
            why = "its events count backwards"
        except Exception as problem:  # a vendor's module may raise anything at all
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
        """Return when all work given to the device is done."""
        self._synchronize()

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

    def autocast(self, dtype):
        """Context in which eligible operators compute in `dtype`; None: as written."""
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type=self.type, dtype=dtype)

    def scaler(self):
        """A loss scaler for fp16."""
        try:
            return torch.amp.GradScaler(self.type)
        except Exception as problem:
            raise EnvironmentProblem(
                f"device type {self.type!r} has no loss scaler ({problem}): set precision = 'bf16' or 'fp32'"
            ) from problem

    def set_tf32(self, on):
        """Allow or forbid TF32 for matrix products and convolutions, everywhere torch has a switch for it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer torch names newer switches; these are the ones that 2.4 has too
            torch.set_float32_matmul_precision("high" if on else "highest")
            for holder in self._tf32_switches():
                holder.allow_tf32 = on

    def _tf32_switches(self):
        own = getattr(torch.backends, self.type, None)
        holders = (getattr(own, "matmul", None), torch.backends.cudnn if self.type == "cuda" else own)
        return [holder for holder in holders if holder is not None and hasattr(holder, "allow_tf32")]

    def reads_tf32(self):
        """What the switches say now; None where the device type has none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            states = [bool(holder.allow_tf32) for holder in self._tf32_switches()]
        return any(states) if states else None

    def autotune(self, on):
        """Let the chip's library time its algorithms for each shape of a convolution; nothing where it cannot."""
        own = torch.backends.cudnn if self.type == "cuda" else getattr(torch.backends, self.type, None)
        if hasattr(own, "benchmark"):
            own.benchmark = on

    def _keep_off_attention_kernels(self):
        """Have torch choose among the others: its switches are one set for all device types."""
        if not self.can("attention_flash"):
            torch.backends.cuda.enable_flash_sdp(False)
        if not self.can("attention_efficient"):
            torch.backends.cuda.enable_mem_efficient_sdp(False)

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
        for holder in (self.module, self._accelerator):
            if hasattr(holder, name):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    return int(getattr(holder, name)(self.index))
        self.fall_back(name, f"torch.{self.type} does not count it: null")
        return None

    def free_bytes(self):
        """Memory of the chip that nobody holds now, whoever asks; None: a host, or not told."""
        if self.is_host or not hasattr(self.module, "mem_get_info"):
            return None
        return int(self.module.mem_get_info(self.index)[0])

    def reset_memory_peak(self):
        """Count the peak from here."""
        for holder in () if self.is_host else (self.module, self._accelerator):
            if hasattr(holder, "reset_peak_memory_stats"):
                holder.reset_peak_memory_stats(self.index)
                return

    def pin(self, batch):
        """`batch` in page-locked memory where the device can copy from it without waiting."""
        if not self._pinning:
            return batch
        try:
            return map_tensors(lambda tensor: tensor.pin_memory(), batch)
        except (RuntimeError, NotImplementedError) as problem:
            self._pinning = False
            self.fall_back("pinned_memory", f"{problem}".splitlines()[0])
            return batch

    def to(self, batch):
        """`batch` on the device; the copy may still be under way, in order with the work that follows."""
        if self.is_host:
            return batch
        return map_tensors(lambda tensor: tensor.to(self.torch_device, non_blocking=self._pinning), batch)

    def _find_streams(self):
        if self.is_host or not self.can("streams"):
            return False
        if all(hasattr(self.module, name) for name in ("Stream", "stream", "current_stream")):
            return True
        self.fall_back("streams", f"torch.{self.type} has none: batches are copied in line")
        return False

    def side_stream(self):
        """A second queue of the device for copies, or None."""
        return self.module.Stream() if self._streams else None

    def copy_beside(self, batch, stream):
        """`batch` on the device, copied on `stream` while the main queue computes, and ordered before what follows."""
        with self.module.stream(stream):
            moved = self.to(batch)
        main = self.module.current_stream()
        main.wait_stream(stream)
        return map_tensors(lambda tensor: _keep(tensor, main), moved)

    # Random state

    def seed(self, seed):
        """Seed torch on the host and on this device."""
        torch.manual_seed(seed)
        for name in () if self.is_host else ("manual_seed_all", "manual_seed"):
            if hasattr(self.module, name):
                getattr(self.module, name)(seed)
                return

    def rng_state(self):
        """The device's generator, for a checkpoint; None where there is none of its own."""
        if self.is_host or not self.can("rng_state"):
            return None
        if hasattr(self.module, "get_rng_state"):
            return self.module.get_rng_state(self.index)
        self.fall_back("rng_state", f"torch.{self.type} does not show it: dropout differs after a resume")
        return None

    def set_rng_state(self, state):
        """Restore what `rng_state` gave."""
        if state is not None and hasattr(self.module, "set_rng_state"):
            self.module.set_rng_state(state, self.index)

    # Identity

    def facts(self):
        """The header's `device`: type, name, identity, index, memory_bytes."""
        return {
            "type": self.type,
            "name": self.name,
            "identity": self.identity,
            "index": self.index,
            "memory_bytes": self.memory_bytes,
        }

    @property
    def _properties(self):
        get = getattr(self.module, "get_device_properties", None)
        return get(self.index) if get else None

    @property
    def name(self):
        """The chip's own name, as machines/*.toml match it."""
        if self.is_host:
            return host.processor()
        if hasattr(self.module, "get_device_name"):
            return str(self.module.get_device_name(self.index))
        return str(getattr(self._properties, "name", self.type))

    @property
    def identity(self):
        """What tells this chip from all others of its host, by the key that the vendor declares."""
        key = self.spec.get("identity", "host")
        if self.is_host or key == "host":
            return socket.gethostname() if self.is_host else self._place()
        found = _pci(self._properties) if key == "pci" else getattr(self._properties, key, None)
        if found:
            return str(found)
        self.fall_back("identity", f"torch.{self.type} does not show {key!r}: host and place are used")
        return self._place()

    def _place(self):
        visible = os.environ.get(self.spec.get("visible_devices") or "", "")
        return f"{socket.gethostname()}/{self.type}:{self.index}" + (f" of {visible}" if visible else "")

    @property
    def numa(self):
        """The NUMA node that the chip hangs on; None: the host has none, or does not tell."""
        return None if self.is_host else host.numa_node(_pci(self._properties))

    @property
    def memory_bytes(self):
        """Memory of the chip, or of the host; None: unknown."""
        if self.is_host:
            return host.memory_bytes()
        total = getattr(self._properties, "total_memory", None)
        if total is None and hasattr(self.module, "mem_get_info"):
            total = self.module.mem_get_info(self.index)[1]
        return None if total is None else int(total)

    def versions(self):
        """Versions of torch and of what it was built for, by torch's own names."""
        found = {key: value for key, value in vars(torch.version).items() if isinstance(value, str) and key[0] != "_"}
        return {"python": platform.python_version(), "torch": torch.__version__, **found}


def _module(kind):
    """torch's module of a device type."""
    get = getattr(torch, "get_device_module", None)
    try:
        return get(kind) if get else getattr(torch, kind)
    except (RuntimeError, AttributeError) as problem:
        raise EnvironmentProblem(
            f"torch {torch.__version__} has no device type {kind!r}: name its plug-in in vendor.toml, [device] plugin"
        ) from problem


def _index(spec, module, local_rank):
    """Which of the visible devices is ours: the local rank's, or the only one where the launcher bound one to each."""
    available = getattr(module, "is_available", lambda: True)()
    count = module.device_count() if available and hasattr(module, "device_count") else int(available)
    if count == 0:
        seen = spec.get("visible_devices") or ""
        hint = f" ({seen}={os.environ.get(seen, '')!r})" if seen else ""
        raise EnvironmentProblem(
            f"no device of type {spec['type']!r} is visible here{hint}: check driver and container"
        )
    if count == 1:
        return 0
    if local_rank < count:
        return local_rank
    raise EnvironmentProblem(
        f"local rank {local_rank} has no device: {count} of type {spec['type']!r} are visible; start fewer ranks"
    )


def _pci(properties):
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return None if None in numbers else "{:04x}:{:02x}:{:02x}.0".format(*numbers)


def _keep(tensor, stream):
    tensor.record_stream(stream)
    return tensor
