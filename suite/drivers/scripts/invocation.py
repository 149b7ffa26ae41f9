"""What a rank is asked to run: the script and its words, with everything filled in that only a run knows.

Standard library only, Python 3.8: this also runs under images of any age.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from typing import Any, Dict, List

from suite.drivers.events import EventWriter, Place, RunProblem, RunSpec, find_place

EXIT_EXCEPTION = 1
EXIT_USAGE = 4
EXIT_ENVIRONMENT = 3

VISIBLE = "TRAINMARK_VISIBLE_DEVICES"
"""What the visible-devices variable must be, whatever the launcher made of it."""

_NAME = re.compile(r"\{(seed|run_dir|data_dir|case_dir)\}")


class Invocation:
    """A rank's script, from the words after the wrapper's own name. Raises RunProblem."""

    def __init__(self, words: List[str]) -> None:
        if not words:
            raise RunProblem("the wrapper needs the script to run: <script>.py and its arguments")
        self.run = RunSpec.load()
        self.place = _place(self.run)
        self.path = words[0]
        self.arguments = [self._filled(word) for word in words[1:]]
        self.writer = EventWriter(os.path.join(self.run.run_dir, "events", "rank%d.jsonl" % self.place.rank))

    def prepare(self) -> None:
        """Set the environment of the script, before any framework is imported. Raises RunProblem."""
        for key in ("sabotage", "resume"):
            if self.run[key] is not None:
                raise RunProblem("%s = %r: a script of others knows nothing of it; run without" % (key, self.run[key]))
        if not os.path.isfile(self.path):
            raise RunProblem("%s does not exist: name the script's path, or use the image that has it" % self.path)
        for name, value in self.run.script.environment.items():
            os.environ[name] = self._filled(value)
        for name, target in self.run.script.links.items():
            with contextlib.suppress(FileExistsError):  # another rank of this node was first
                os.symlink(self._filled(target), os.path.join(self.run.run_dir, name))
        visible = self.run.device.get("visible_devices", "")
        if visible and os.environ.get(VISIBLE):
            os.environ[visible] = os.environ[VISIBLE]

    def tell(self, event: str, **keys: Any) -> None:
        """Write an event that is rank 0's alone."""
        if self.place.rank == 0:
            self.writer.write(event, **keys)

    def stop(self, status: str, reason: str, detail: str, step: int = 0, samples: int = 0, **keys: Any) -> None:
        """Write the last line."""
        self.writer.write(
            "run_stop",
            **dict(
                {"status": status, "reason": reason, "detail": detail[:2000], "step": step, "samples": samples},
                t_wall=time.time(),
                t_mono=time.monotonic(),
                **keys,
            ),
        )

    def world_problem(self) -> str:
        """The sentence where the launcher started another number of ranks than planned; empty: as planned."""
        seen, planned = self.place.world_size, self.run.expect.world_size
        if seen == planned:
            return ""
        return (
            "world size is %d where the plan says %d: the launcher did not start as many ranks"
            " (RANK=%s, WORLD_SIZE=%s); see the launcher's own log"
            % (seen, planned, os.environ.get("RANK", "unset"), os.environ.get("WORLD_SIZE", "unset"))
        )

    def _filled(self, text: str) -> str:
        return _NAME.sub(self._value, text)

    def _value(self, found: "re.Match[str]") -> str:
        value = self.run[found[1]]
        if value is None:
            raise RunProblem("the script's arguments name {data_dir}, and the run has no data folder: say --data-dir")
        return str(value)


def plain_header(invocation: Invocation) -> None:
    """The header of a rank of which nothing is known but what its environment says."""
    run, place = invocation.run, invocation.place
    device: Dict[str, Any] = {"type": run.device.type, "name": "", "identity": "", "index": None, "memory_bytes": None}
    invocation.writer.write(
        "header",
        schema=1,
        run=run.run,
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        node_rank=place.node_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        t_wall=time.time(),
        t_mono=time.monotonic(),
        devices=1,
        device=device,
        framework={"name": os.path.basename(run.case_dir), "version": ""},
        precision={"compute": None, "autocast": None, "tf32": None, "matmul": None},
        fallbacks=[],
        slots={},
        numa=None,
        cpus=len(os.sched_getaffinity(0)),
        timer="log",
        transport="none" if place.world_size == 1 else "unknown",
        versions={"python": "%d.%d.%d" % sys.version_info[:3]},
    )


def _place(run: RunSpec) -> Place:
    """As the launcher's variables say; one that does not count the ranks of a node has the plan's on each."""
    place = find_place()
    if "LOCAL_WORLD_SIZE" in os.environ or place.world_size != run.expect.world_size:
        return place
    nproc = int(run.topology.nproc)
    return Place(place.rank, place.world_size, place.rank % nproc, nproc, place.rank // nproc)
