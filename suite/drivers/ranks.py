"""Starts the ranks of one node: `python ranks.py --nproc-per-node=2 … rank.py train.py`. Standard library only.

For frameworks that bring no launcher of their own. Each rank gets the variables that torchrun would give it; they meet
by themselves at MASTER_ADDR:MASTER_PORT. The first rank that fails ends the others of its node.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from typing import Any

GRACE_S = 30.0
"""From the word to end until the kill: more than rank.py gives its child."""
POLL_S = 0.05
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Node:
    """The ranks of this node."""

    def __init__(self) -> None:
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._kill_at: float | None = None
        for number in FORWARDED:
            signal.signal(number, self._forward)

    def start(self, program: list[str], environments: list[dict[str, str]]) -> None:
        """One process for each environment."""
        for environment in environments:
            if self._kill_at is None:
                self._ranks.append(subprocess.Popen([sys.executable, *program], env=environment))

    def wait(self) -> int:
        """0 where every rank has left with 0, else 1. How long a run may take is the harness's to say."""
        while True:
            codes = [rank.poll() for rank in self._ranks]
            if None not in codes:
                return int(any(codes) or self._kill_at is not None)
            if any(codes):  # a rank that is gone is waited for by all the others
                self.end(signal.SIGTERM)
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._signal(signal.SIGKILL)
            time.sleep(POLL_S)

    def end(self, number: int) -> None:
        """Tell every rank once; GRACE_S later it is killed."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S
            self._signal(number)

    def _forward(self, number: int, frame: Any) -> None:
        self.end(number)

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            if rank.poll() is None:
                rank.send_signal(number)


def environments(options: argparse.Namespace, base: dict[str, str]) -> list[dict[str, str]]:
    """The variables of each rank of this node."""
    nproc, node = options.nproc_per_node, options.node_rank
    return [
        {
            **base,
            "RANK": str(node * nproc + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(options.nnodes * nproc),
            "LOCAL_WORLD_SIZE": str(nproc),
            "GROUP_RANK": str(node),
            "MASTER_ADDR": options.master_addr,
            "MASTER_PORT": options.master_port,
        }
        for local in range(nproc)
    ]


def main(argv: list[str]) -> int:
    """Start, wait, and say how it ended."""
    parser = argparse.ArgumentParser(prog="ranks.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--nproc-per-node", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", default="29500")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what each rank runs, with its words")
    options = parser.parse_args(argv)
    if not options.program:
        parser.error("name what each rank runs: rank.py <case>/train.py")
    if min(options.nnodes, options.nproc_per_node) < 1 or not 0 <= options.node_rank < options.nnodes:
        parser.error(f"node {options.node_rank} of {options.nnodes} with {options.nproc_per_node} ranks cannot be")
    node = Node()
    node.start(options.program, environments(options, dict(os.environ)))
    return node.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
