"""Chips broken on purpose, so that somebody can see a conformance run turn red."""

import contextlib
import threading

import torch
from torch.overrides import TorchFunctionMode

from suite.conformance.checks import SABOTAGES
from suite.conformance.chip.pytorch.clocks import Products
from suite.drivers.events import RunProblem

DROPPED_BITS = 13
"""Behind the ten that TF32 keeps of fp32's twenty-three."""
PRODUCTS = (
    torch.matmul, torch.mm, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.nn.functional.conv2d,
)  # fmt: skip


class Sound:
    """Nothing is broken."""

    def break_device(self, device):
        """Change the Device itself."""

    def work(self, device):
        """The long kernel."""
        return Products(device)

    def exchange(self, exchange, group):
        """The collectives."""
        return exchange

    def products(self):
        """Context of all arithmetic."""
        return contextlib.nullcontext()


class NoSynchronise(Sound):
    """Synchronise returns at once. A host computes in line, so it gets a queue first."""

    def break_device(self, device):
        device.synchronize = lambda: None

    def work(self, device):
        return Queued(Products(device)) if device.is_host else Products(device)


class Queued:
    """Work that a thread does: `start` returns at once, as on a chip, and `wait` is what a synchronise has to do."""

    def __init__(self, work):
        self._work = work
        self._thread = None

    def start(self):
        """Queue it."""
        self._thread = threading.Thread(target=self._compute)
        self._thread.start()

    def _compute(self):
        torch.set_num_threads(1)  # a new thread would take all cores
        self._work.start()

    def wait(self):
        """Return when it is done."""
        if self._thread is not None:
            self._thread.join()

    def finish(self):
        """The result, on the host."""
        self.wait()
        return self._work.finish()


class RankDropped(Sound):
    """The last rank's part counts as zeros."""

    def exchange(self, exchange, group):
        return Dropping(exchange) if group.rank == group.world_size - 1 else exchange


class Dropping:
    """Collectives that lose what this rank brings."""

    def __init__(self, exchange):
        self._exchange = exchange

    def __getattr__(self, name):
        collective = getattr(self._exchange, name)
        return lambda mine, size: collective(torch.zeros_like(mine), size)


class Tf32AsFp32(Sound):
    """Products round their operands, whatever the switches say."""

    def products(self):
        return Rounding()


class Rounding(TorchFunctionMode):
    """Operands of products keep ten bits behind the point."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in PRODUCTS:
            args = tuple(rounded(value) if torch.is_tensor(value) else value for value in args)
        return function(*args, **(kwargs or {}))


def rounded(tensor):
    """`tensor` with the last bits of fp32 cut off; other types as they are."""
    if tensor.dtype != torch.float32:
        return tensor
    return tensor.view(torch.int32).bitwise_and(-1 << DROPPED_BITS).view(torch.float32)


class SeedIgnored(Sound):
    """The device goes on in its series, whatever seed it is given."""

    def break_device(self, device):
        device.seed = lambda seed: None


_CLASSES = {
    "no_synchronise": NoSynchronise,
    "rank_dropped": RankDropped,
    "tf32_as_fp32": Tf32AsFp32,
    "seed_ignored": SeedIgnored,
}


def named(name):
    """The sabotage of run.json; None: nothing is broken. Raises RunProblem for an unknown one."""
    if name is None:
        return Sound()
    if name not in _CLASSES:
        raise RunProblem(f"sabotage {name!r} is not one of {', '.join(SABOTAGES)}: name one of these")
    return _CLASSES[name]()
