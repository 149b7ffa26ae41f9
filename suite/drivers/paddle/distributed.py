"""The ranks together: Paddle's process group for the gradients, and a control group for what must be trusted."""

import contextlib
import os
import socket
import time
import warnings

import numpy as np
import paddle
import paddle.distributed as dist

from suite.drivers.paddle.control import MEET_S, Control
from suite.drivers.paddle.problem import EnvironmentProblem
from suite.drivers.paddle.weights import statistics

RETRY_S = 0.1
KEY = "trainmark/control"


def backend_of(spec):
    """`gloo`, or the chip's own of `cpu:gloo,X:Y`."""
    return spec["backend"].rpartition(",")[2].rpartition(":")[2]


def paddle_variables(place, environ, backend, index):
    """What paddle.distributed.launch would have set, from what torchrun's variables say. Raises EnvironmentProblem.

    Only the first endpoint is ever called: there rank 0 keeps the store in which the ranks find each other. The others
    tell the ranks of a host apart, and need no port of their own.
    """
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise EnvironmentProblem(
            f"MASTER_ADDR={host!r} MASTER_PORT={port!r}: {place.world_size} ranks cannot meet; export both"
        )
    endpoints = [f"{host}:{port}", *(f"rank{rank}:{port}" for rank in range(1, place.world_size))]
    return {
        "PADDLE_TRAINER_ID": str(place.rank),
        "PADDLE_TRAINERS_NUM": str(place.world_size),
        "PADDLE_RANK_IN_NODE": str(place.local_rank),
        "PADDLE_LOCAL_SIZE": str(place.local_world_size),
        "PADDLE_NNODES": str(max(1, place.world_size // place.local_world_size)),
        "PADDLE_MASTER": endpoints[0],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[place.rank],
        "PADDLE_DISTRI_BACKEND": backend,
        "FLAGS_selected_gpus": str(index),
        "FLAGS_stop_check_timeout": str(MEET_S),
    }


class Group:
    """All ranks of the run. Alone, every exchange is the identity."""

    def __init__(self, place, device):
        self.rank, self.world_size = place.rank, place.world_size
        self._control = Control()
        if self.world_size > 1:
            self._join(place, device)

    def _join(self, place, device):
        os.environ.update(paddle_variables(place, os.environ, backend_of(device.spec), device.index))
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if self.rank:
            _await_master(host, port)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.init_parallel_env()
        store = paddle.base.core.create_or_get_global_tcp_store()
        self._control = Control(
            self.rank,
            self.world_size,
            host,
            tell=lambda text: store.set(KEY, text.encode("ascii")),
            ask=lambda: store.get(KEY).decode("ascii"),
        )

    def gather(self, value):
        """`value`, plain JSON, of every rank in order, on every rank, over the control group."""
        return self._control.gather(value)

    def sum(self, numbers):
        """Whole numbers summed over the ranks, on the control group: equal on every rank."""
        return self._control.sum(numbers)

    def barrier(self):
        """Wait for all ranks."""
        self._control.barrier()

    def farewell(self):
        """Give the other ranks a few seconds to say their last word too."""
        self._control.farewell()

    def wrap(self, model, averaged=True):
        """`model` with its gradients averaged over the ranks; bare where there is one rank, or where not `averaged`."""
        return paddle.DataParallel(model) if self.world_size > 1 and averaged else model

    def share_statistics(self, model):
        """Give every rank rank 0's running statistics, which equal gradients do not keep equal."""
        buffers = statistics(model)
        if self.world_size == 1 or not buffers:
            return
        held = [np.ascontiguousarray(buffer.numpy()) for buffer in buffers]
        own = b"".join(array.tobytes() for array in held) if self.rank == 0 else b""
        data, place = self._control.gather_bytes(own)[0], 0
        for buffer, array in zip(buffers, held):
            values = np.frombuffer(data, array.dtype, array.size, place).reshape(array.shape)
            buffer.set_value(values)
            place += array.nbytes

    @staticmethod
    def accumulate(model):
        """Context of a micro-batch whose gradients stay local."""
        return model.no_sync() if hasattr(model, "no_sync") else contextlib.nullcontext()

    def close(self):
        """Leave the group."""
        self._control.close()


def _await_master(host, port):
    """Return once rank 0 listens: Paddle itself would look again only every three seconds."""
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            socket.create_connection((host, port), timeout=RETRY_S * 10).close()
            return
        except OSError as problem:
            if time.monotonic() > deadline:
                raise EnvironmentProblem(f"rank 0 was not met at {host}:{port} in {MEET_S} s: {problem}") from problem
            time.sleep(RETRY_S)


def transport(world_size, backend):
    """What carries the gradients, as far as the environment tells: `none` alone, else a name or `unknown`."""
    if world_size == 1:
        return "none"
    return os.environ.get("TRAINMARK_TRANSPORT", "") or ("tcp" if backend == "gloo" else "unknown")
