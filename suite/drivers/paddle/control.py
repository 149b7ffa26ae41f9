"""The control group: what ranks tell each other on the host, over TCP and not over the collectives under test.

A star around rank 0. Paddle's own gloo gives up after 30 seconds, which a checkpoint or an evaluation may take.
"""

import contextlib
import hmac
import json
import secrets
import socket
import struct
import time

from suite.drivers.paddle.problem import EnvironmentProblem

MEET_S = 900
"""For all ranks to come."""
CONTROL_S = 1800
"""For one exchange: others wait here while rank 0 writes a checkpoint."""
FAREWELL_S = 10
GREETING_S = 10
"""For one who has connected to say the word; a stranger may not."""
LENGTH = struct.Struct("!Q")
LARGEST = 1 << 33
WORD = 32
"""Characters of the secret that the ranks share."""


class Control:
    """All ranks of the run. Alone, every exchange is the identity."""

    def __init__(self, rank=0, world_size=1, host="", tell=None, ask=None):
        """`tell(text)` of rank 0 reaches `ask()` of all others: where to come to, and the word to say."""
        self.rank, self.world_size = rank, world_size
        self._peers = []
        if world_size > 1:
            self._peers = self._welcome(tell) if rank == 0 else [self._join(host, ask())]
            self._limit(CONTROL_S)

    def _welcome(self, tell):
        """A connection to every other rank, in their order."""
        word, deadline, found = secrets.token_hex(WORD // 2), time.monotonic() + MEET_S, {}
        with socket.create_server(("", 0), backlog=self.world_size) as server:
            tell(f"{server.getsockname()[1]} {word}")
            while len(found) < self.world_size - 1:
                server.settimeout(max(0.1, deadline - time.monotonic()))
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    raise EnvironmentProblem(
                        f"only {len(found) + 1} of {self.world_size} ranks met in {MEET_S} s: see the others' logs"
                    ) from None
                if rank := _greeted(peer, word, self.world_size):
                    found[rank] = peer
                else:
                    peer.close()
        return [found[rank] for rank in sorted(found)]

    def _join(self, host, told):
        port, word = told.split()
        try:
            peer = socket.create_connection((host, int(port)), timeout=MEET_S)
        except OSError as problem:
            raise EnvironmentProblem(f"rank 0 was not met at {host}:{port}: {problem}") from problem
        peer.sendall(word.encode("ascii") + LENGTH.pack(self.rank))
        return peer

    def _limit(self, seconds):
        for peer in self._peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(seconds)

    def gather(self, value):
        """`value`, plain JSON, of every rank in order, on every rank."""
        return [json.loads(data) for data in self.gather_bytes(json.dumps(value).encode())]

    def gather_bytes(self, data):
        """`data` of every rank in order, on every rank."""
        if self.world_size == 1:
            return [data]
        if self.rank:
            _send(self._peers[0], data)
            return [_receive(self._peers[0]) for _ in range(self.world_size)]
        everyone = [data, *(_receive(peer) for peer in self._peers)]
        for peer in self._peers:
            for each in everyone:
                _send(peer, each)
        return everyone

    def sum(self, numbers):
        """Whole numbers summed over the ranks: equal on every rank."""
        return [sum(column) for column in zip(*self.gather([int(number) for number in numbers]))]

    def barrier(self):
        """Wait for all ranks."""
        self.gather_bytes(b"")

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


def _greeted(peer, word, world_size):
    """The rank of who knows the word; 0: a stranger."""
    peer.settimeout(GREETING_S)
    try:
        said = _exactly(peer, WORD)
        rank = LENGTH.unpack(_exactly(peer, LENGTH.size))[0]
    except OSError:
        return 0
    return rank if hmac.compare_digest(said, word.encode("ascii")) and 0 < rank < world_size else 0


def _send(peer, data):
    peer.sendall(LENGTH.pack(len(data)) + data)


def _receive(peer):
    size = LENGTH.unpack(_exactly(peer, LENGTH.size))[0]
    if size > LARGEST:
        raise ConnectionError(f"a message of {size} bytes is none of this run's")
    return _exactly(peer, size)


def _exactly(peer, size):
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise ConnectionError("a rank has left: its own log says why")
        parts += part
    return bytes(parts)
