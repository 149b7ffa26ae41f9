"""The first line of a rank: who it is, what it runs on, and what is not as it should be."""

import os
import socket
import time

import torch

from suite.drivers.pytorch.distributed import transport


def write_header(writer, run, place, device=None, precision=None, slots=None):
    """Write the header; parts that could not be had are null, so that a failed start names itself too."""
    facts = {"type": run.device.type, "name": "", "identity": "", "index": None, "memory_bytes": None}
    writer.write(
        "header",
        schema=1,
        run=run.run,
        sabotage=run.sabotage,
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        node_rank=place.node_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        t_wall=time.time(),
        t_mono=time.monotonic(),
        devices=1,
        device=device.facts() if device else facts,
        framework={"name": "pytorch", "version": torch.__version__},
        precision=precision or {"compute": None, "autocast": None, "tf32": None, "matmul": None},
        fallbacks=list(device.fallbacks) if device else [],
        slots=slots or {},
        numa=device.numa if device else None,
        cpus=len(os.sched_getaffinity(0)),
        timer=device.timer if device else "sync_clock",
        transport=transport(place.world_size, run.device.backend),
        versions=device.versions() if device else {"torch": torch.__version__},
        threads=torch.get_num_threads(),
    )
