"""The control group: a star around rank 0, which waits on the port that the launcher chose."""

import json
import os
import socket
import time

from suite.drivers.star import MEET_S, Absent, Star, receive, send, welcome
from suite.drivers.tensorflow2.problem import EnvironmentProblem

RETRY_S = 0.1
GREETING = 4096
"""Bytes of what a rank says first, at most."""


class Control(Star):
    """All ranks of the run, in a star around rank 0. Alone, every exchange is the identity."""

    def __init__(self, place):
        self.address = "127.0.0.1"
        """Where other ranks reach this one's host."""
        peers = []
        if place.world_size > 1:
            host, port = _meeting_point(place.world_size)
            if place.rank == 0:
                self.address, peers = host, _welcome(host, port, place.world_size)
            else:
                peers = [_join(place.rank, host, port)]
                self.address = peers[0].getsockname()[0]
        super().__init__(place.rank, place.world_size, peers)


def _welcome(host, port, world_size):
    """Rank 0: a connection to every other rank, in their order."""
    with socket.create_server(("", port), backlog=world_size) as server:
        try:
            return welcome(server, world_size, _greeted)
        except Absent as absent:
            raise EnvironmentProblem(
                f"only {absent.come} of {world_size} ranks came to {host}:{port} in {MEET_S} s"
            ) from None


def _join(rank, host, port):
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            peer = socket.create_connection((host, port), timeout=MEET_S)
            break
        except OSError as problem:
            if time.monotonic() > deadline:
                raise EnvironmentProblem(f"rank 0 was not met at {host}:{port} in {MEET_S} s: {problem}") from None
            time.sleep(RETRY_S)
    send(peer, json.dumps({"rank": rank, "run": _run()}).encode())
    return peer


def _meeting_point(world_size):
    """(MASTER_ADDR, MASTER_PORT) of the launcher."""
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise EnvironmentProblem(
            f"MASTER_ADDR={host!r} MASTER_PORT={port!r}: {world_size} ranks cannot meet; export both"
        )
    return host, int(port)


def _run():
    """The run id, which the launcher gives to every rank."""
    return os.environ.get("TRAINMARK_RUN_ID", "")


def _greeted(peer):
    """The rank of who names this run; 0: a stranger, or a rank of another run."""
    try:
        said = json.loads(receive(peer, GREETING))
    except (OSError, ValueError, RecursionError):
        return 0
    rank = said.get("rank") if isinstance(said, dict) and said.get("run") == _run() else None
    return rank if isinstance(rank, int) else 0
