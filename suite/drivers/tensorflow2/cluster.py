"""TF_CONFIG: who is in the cluster, made of what the launcher says and of what the ranks tell each other."""

import json
import os
import socket

VARIABLE = "TF_CONFIG"


def configure_cluster(worker_hosts, task_index):
    """Set TF_CONFIG: `worker_hosts` as host:port in the order of ranks, and the place of this one. One worker: none."""
    if len(worker_hosts) < 2:
        os.environ.pop(VARIABLE, None)  # a leftover would wait for workers of another run
        return None
    config = {"cluster": {"worker": list(worker_hosts)}, "task": {"type": "worker", "index": task_index}}
    os.environ[VARIABLE] = json.dumps(config)
    return config


def meet(control):
    """host:port of every rank's server. The port was free a moment ago; one that is taken since ends the start."""
    if control.world_size == 1:
        return []
    with socket.socket() as held:
        held.bind(("", 0))
        return control.gather(f"{control.address}:{held.getsockname()[1]}")
