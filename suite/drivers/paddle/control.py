"""The control group: a star around rank 0, whose port and word Paddle's own store tells the others.

Paddle's own gloo gives up after 30 seconds, which a checkpoint or an evaluation may take.
"""

import hmac
import secrets
import socket

from suite.drivers.paddle.problem import EnvironmentProblem
from suite.drivers.star import LENGTH, MEET_S, Absent, Star, exactly, welcome

__all__ = ["MEET_S", "Control"]

WORD = 32
"""Characters of the secret that the ranks share."""


class Control(Star):
    """All ranks of the run. Alone, every exchange is the identity."""

    def __init__(self, rank=0, world_size=1, host="", tell=None, ask=None):
        """`tell(text)` of rank 0 reaches `ask()` of all others: where to come to, and the word to say."""
        peers = []
        if world_size > 1:
            peers = _welcome(world_size, tell) if rank == 0 else [_join(rank, host, ask())]
        super().__init__(rank, world_size, peers)


def _welcome(world_size, tell):
    """A connection to every other rank, in their order."""
    word = secrets.token_hex(WORD // 2)
    with socket.create_server(("", 0), backlog=world_size) as server:
        tell(f"{server.getsockname()[1]} {word}")
        try:
            return welcome(server, world_size, lambda peer: _greeted(peer, word))
        except Absent as absent:
            raise EnvironmentProblem(
                f"only {absent.come} of {world_size} ranks met in {MEET_S} s: see the others' logs"
            ) from None


def _join(rank, host, told):
    port, word = told.split()
    try:
        peer = socket.create_connection((host, int(port)), timeout=MEET_S)
    except OSError as problem:
        raise EnvironmentProblem(f"rank 0 was not met at {host}:{port}: {problem}") from problem
    peer.sendall(word.encode("ascii") + LENGTH.pack(rank))
    return peer


def _greeted(peer, word):
    """The rank of who knows the word; 0: a stranger."""
    try:
        said = exactly(peer, WORD)
        rank = LENGTH.unpack(exactly(peer, LENGTH.size))[0]
    except OSError:
        return 0
    return rank if hmac.compare_digest(said, word.encode("ascii")) else 0
