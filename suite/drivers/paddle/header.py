"""The first line of a rank: who it is, what it runs on, and what is not as it should be."""

import os
import socket
import time

import paddle

from suite.drivers.paddle.distributed import backend_of, transport


def write_header(writer, run, place, device=None, precision=None, slots=None):
    """Write the header; parts that could not be had are null, so that a failed start names itself too."""
    facts = {"type": run.device.type, "name": "", "identity": "", "index": None, "memory_bytes": None}
    threads = run.params.get("threads", 0)
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
        framework={"name": "paddle", "version": paddle.__version__},
        precision=precision or {"compute": None, "autocast": None, "tf32": None, "matmul": None},
        fallbacks=list(device.fallbacks) if device else [],
        slots=slots or {},
        numa=None,
        cpus=len(os.sched_getaffinity(0)),
        timer=device.timer if device else "sync_clock",
        transport=transport(place.world_size, backend_of(run.device)),
        versions=device.versions() if device else {"paddle": paddle.__version__},
        threads=threads or None,
    )
