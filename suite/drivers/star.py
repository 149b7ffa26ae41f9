"""What ranks tell each other on the host: over TCP, in a star around rank 0, not over the collectives under test.

Standard library only. How the ranks meet, and by what word they know each other, is each driver's own.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MEET_S = 900
"""For all ranks to come."""
CONTROL_S = 1800
"""For one exchange: others wait here while rank 0 writes a checkpoint."""
FAREWELL_S = 10
GREETING_S = 10
"""For one who has connected to say who it is; a stranger may not."""
LENGTH = struct.Struct("!Q")
LARGEST = 1 << 33
"""Bytes of one message; a stranger on the port says more."""


class Absent(Exception):
    """Not all ranks have come in time; `come` have, rank 0 among them."""

    def __init__(self, come: int) -> None:
        super().__init__(f"{come} ranks have come")
        self.come = come


class Star:
    """All ranks of the run. Alone, every exchange is the identity."""

    def __init__(self, rank: int, world_size: int, peers: Sequence[socket.socket]) -> None:
        """`peers`: of rank 0 a connection to each other rank, in their order; of these the one to rank 0."""
        self.rank, self.world_size = rank, world_size
        self._peers = list(peers)
        for peer in self._peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._limit(CONTROL_S)

    def _limit(self, seconds: float) -> None:
        for peer in self._peers:
            peer.settimeout(seconds)

    def gather(self, value: Any) -> list[Any]:
        """`value`, plain JSON, of every rank in order, on every rank."""
        return [json.loads(data) for data in self.gather_bytes(json.dumps(value).encode())]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """`data` of every rank in order, on every rank."""
        if self.world_size == 1:
            return [data]
        if self.rank:
            send(self._peers[0], data)
            return [receive(self._peers[0]) for _ in range(self.world_size)]
        everyone = [data, *(receive(peer) for peer in self._peers)]
        for peer in self._peers:
            for each in everyone:
                send(peer, each)
        return everyone

    def sum(self, numbers: Iterable[float]) -> list[int]:
        """Whole numbers summed over the ranks: equal on every rank."""
        return [sum(column) for column in zip(*self.gather([int(number) for number in numbers]))]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather_bytes(b"")

    def farewell(self) -> None:
        """Give the other ranks a few seconds to say their last word too, before the launcher sees one leave."""
        self._limit(FAREWELL_S)
        with contextlib.suppress(OSError):
            self.barrier()

    def close(self) -> None:
        """Leave the group."""
        for peer in self._peers:
            peer.close()
        self._peers = []


def welcome(server: socket.socket, world_size: int, greeted: Callable[[socket.socket], int]) -> list[socket.socket]:
    """Rank 0: a connection to every other rank, in their order. Raises Absent once MEET_S are over.

    `greeted` tells the rank of who has connected, 0 for a stranger; it has GREETING_S for each read.
    """
    deadline, found = time.monotonic() + MEET_S, dict[int, socket.socket]()
    while len(found) < world_size - 1:
        server.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            peer, _ = server.accept()
        except TimeoutError:
            raise Absent(len(found) + 1) from None
        peer.settimeout(GREETING_S)
        rank = greeted(peer)
        if 0 < rank < world_size and rank not in found:
            found[rank] = peer
        else:
            peer.close()
    return [found[rank] for rank in sorted(found)]


def send(peer: socket.socket, data: bytes) -> None:
    """One message."""
    peer.sendall(LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket, largest: int = LARGEST) -> bytes:
    """One message. Raises OSError where the rank has left, or a stranger speaks."""
    size = LENGTH.unpack(exactly(peer, LENGTH.size))[0]
    if size > largest:
        raise ConnectionError(f"a message of {size} bytes: what speaks on the meeting port is no rank of this run")
    return exactly(peer, size)


def exactly(peer: socket.socket, size: int) -> bytes:
    """So many bytes. Raises OSError where the rank has left."""
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise ConnectionError("a rank has left: its own log says why")
        parts += part
    return bytes(parts)
