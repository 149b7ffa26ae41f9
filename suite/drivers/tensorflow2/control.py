"""The control group: what ranks tell each other on the host, over TCP and not over the collectives under test."""

import contextlib
import json
import os
import socket
import struct
import time

from suite.drivers.tensorflow2.problem import EnvironmentProblem

MEET_S = 900
"""For all ranks to meet."""
CONTROL_S = 1800
"""For one exchange: others wait here while rank 0 writes a checkpoint."""
FAREWELL_S = 10
RETRY_S = 0.1
GREETING_S = 10
"""For one who has connected to say who it is; a stranger may not."""
GREETING = 4096
"""Bytes of that at most."""
LENGTH = struct.Struct("!Q")
LARGEST = 1 << 33
"""Bytes of one message; a stranger on the port says more."""


class Control:
    """All ranks of the run, in a star around rank 0. Alone, every exchange is the identity."""

    def __init__(self, place):
        self.rank, self.world_size = place.rank, place.world_size
        self.address = "127.0.0.1"
        """Where other ranks reach this one's host."""
        self._peers = []
        if self.world_size > 1:
            host, port = _meeting_point(self.world_size)
            self._peers = self._welcome(host, port) if self.rank == 0 else [self._join(host, port)]
            self._limit(CONTROL_S)

    def _welcome(self, host, port):
        """Rank 0: a connection to every other rank, in their order."""
        self.address = host
        deadline, found = time.monotonic() + MEET_S, {}
        with socket.create_server(("", port), backlog=self.world_size) as server:
            while len(found) < self.world_size - 1:
                server.settimeout(max(0.1, deadline - time.monotonic()))
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    raise EnvironmentProblem(
                        f"only {len(found) + 1} of {self.world_size} ranks came to {host}:{port} in {MEET_S} s"
                    ) from None
                rank = _greeted(peer, self.world_size)
                if rank and rank not in found:
                    found[rank] = peer
                else:
                    peer.close()
        return [found[rank] for rank in sorted(found)]

    def _join(self, host, port):
        deadline = time.monotonic() + MEET_S
        while True:
            try:
                peer = socket.create_connection((host, port), timeout=MEET_S)
                break
            except OSError as problem:
                if time.monotonic() > deadline:
                    raise EnvironmentProblem(f"rank 0 was not met at {host}:{port} in {MEET_S} s: {problem}") from None
                time.sleep(RETRY_S)
        self.address = peer.getsockname()[0]
        _send(peer, {"rank": self.rank, "run": _run()})
        return peer

    def _limit(self, seconds):
        for peer in self._peers:
            peer.settimeout(seconds)

    def gather(self, value):
        """`value` (plain JSON) of every rank in order, on every rank."""
        if self.world_size == 1:
            return [value]
        if self.rank:
            _send(self._peers[0], value)
            return _receive(self._peers[0])
        everyone = [value, *(_receive(peer) for peer in self._peers)]
        for peer in self._peers:
            _send(peer, everyone)
        return everyone

    def sum(self, numbers):
        """Whole numbers summed over the ranks: equal on every rank."""
        return [sum(column) for column in zip(*self.gather([int(number) for number in numbers]))]

    def barrier(self):
        """Wait for all ranks."""
        self.gather(None)

    def farewell(self):
        """Give the other ranks a few seconds to say their last word too, before the launcher sees one leave."""
        self._limit(FAREWELL_S)
        with contextlib.suppress(OSError):
            self.barrier()

    def close(self):
        """Leave the group."""
        for peer in self._peers:
            peer.close()
        self._peers = []


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


def _greeted(peer, world_size):
    """The rank of who names this run; 0: a stranger, or a rank of another run."""
    peer.settimeout(GREETING_S)
    try:
        said = _receive(peer, GREETING)
    except (OSError, ValueError, RecursionError):
        return 0
    rank = said.get("rank") if isinstance(said, dict) and said.get("run") == _run() else None
    return rank if isinstance(rank, int) and 0 < rank < world_size else 0


def _send(peer, value):
    data = json.dumps(value).encode()
    peer.sendall(LENGTH.pack(len(data)) + data)


def _receive(peer, largest=LARGEST):
    size = LENGTH.unpack(_exactly(peer, LENGTH.size))[0]
    if size > largest:
        raise ConnectionError(f"a message of {size} bytes: what speaks on the meeting port is no rank of this run")
    return json.loads(_exactly(peer, size))


def _exactly(peer, size):
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise ConnectionError("a rank has left: its own log says why")
        parts += part
    return bytes(parts)
