"""TF_CONFIG: who is in the cluster, made of what the launcher says and of what the ranks tell each other."""

import json
import os
import random
import socket

VARIABLE = "TF_CONFIG"
_FIRST, _LAST = 10000, 16000
"""Ports of servers: below those that the harness leases, and those that Linux gives to whoever asks for any, which may
be somebody else before the server listens."""


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
        port = _bind(held)
        return control.gather(f"{control.address}:{port}")


def _bind(held):
    """Give the socket a port that nobody has, at random: ranks of other runs are looking for theirs too."""
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), 200):
        try:
            held.bind(("", port))
        except OSError:
            continue
        return port
    held.bind(("", 0))
    return held.getsockname()[1]
