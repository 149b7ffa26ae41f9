"""The first line of a rank: who it is, what it runs on, and what is not as it should be."""

import os
import socket
import time

import tensorflow as tf

from suite.drivers.tensorflow2.device import versions


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
        framework={"name": "tensorflow2", "version": tf.__version__},
        precision=precision or {"compute": None, "autocast": None, "tf32": None, "matmul": None},
        fallbacks=list(device.fallbacks) if device else [],
        slots=slots or {},
        numa=None,
        cpus=len(os.sched_getaffinity(0)),
        timer="sync_clock",
        transport=_transport(place.world_size, device),
        versions=versions(),
        threads=tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0)),
    )


def _transport(world_size, device):
    """What carries the gradients, as far as it is known: gRPC on the host, whatever NCCL finds elsewhere."""
    if world_size == 1:
        return "none"
    told = os.environ.get("TRAINMARK_TRANSPORT", "")
    return told or ("tcp" if device and device.is_host else "unknown")
