"""Wrapper of one rank: `python rank.py train.py …` runs it as a child, keeps its log, and records how it ended.

torchrun itself always leaves with 1, so only this record tells which rank failed, when, and by which signal.
Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, List

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[0] = ROOT  # as a script this folder would come first, and its module names would hide others

from suite.drivers.events import RunProblem, RunSpec, find_place  # noqa: E402

GRACE_S = 20
"""From the first forwarded signal until the child is killed."""
PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Child:
    """The training process, its signals and its record."""

    def __init__(self, argv: List[str], log: int) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: List[int] = []
        for forwarded in FORWARDED:
            signal.signal(forwarded, self._forward)
        signal.signal(signal.SIGALRM, self._kill)
        self.started_wall = time.time()
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_environment(), preexec_fn=_tie()
        )
        self.pid = self._process.pid
        for number in self._pending:  # arrived before there was a child to tell
            self._process.send_signal(number)

    def _forward(self, number: int, frame: Any) -> None:
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.alarm(GRACE_S)
        if self._process is None:
            self._pending.append(number)
        else:
            self._process.send_signal(number)

    def _kill(self, number: int, frame: Any) -> None:
        if self._process is None:
            signal.alarm(1)
        else:
            self._process.kill()

    def wait(self) -> int:
        """The child's return code: negative for a signal. Its deadline is the harness's, or GRACE_S after a signal."""
        assert self._process is not None
        code = self._process.wait()
        signal.alarm(0)
        return code


def _tie() -> Any:
    """A function for the child that ties its life to ours, prepared before the fork."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return tie


def _environment() -> dict[str, str]:
    """Ours, with the checkout's root first on the child's path."""
    paths = [ROOT] + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", ROOT)]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), PYTHONUNBUFFERED="1")


def record(run_dir: str, rank: int, child: Child, code: int) -> int:
    """Write exits/rank<R>.json atomically; return the exit status for the wrapper itself."""
    status = 128 - code if code < 0 else code
    folder = os.path.join(run_dir, "exits")
    os.makedirs(folder, exist_ok=True)
    partial = os.path.join(folder, f".rank{rank}.json.partial")
    with open(partial, "w", encoding="ascii") as file:
        json.dump(
            {
                "rank": rank,
                "pid": child.pid,
                "started_wall": child.started_wall,
                "ended_wall": time.time(),
                "returncode": status,
                "signal": -code if code < 0 else None,
            },
            file,
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, os.path.join(folder, f"rank{rank}.json"))
    return status


def main(argv: List[str]) -> int:
    """Run `argv[0]` with the rest as its arguments; its own exit status, 128+n for signal n."""
    try:
        if not argv:
            raise RunProblem("rank.py needs the script to run: rank.py <case>/train.py")
        run_dir, rank = str(RunSpec.load().run_dir), find_place().rank
    except RunProblem as problem:
        print(problem, file=sys.stderr)
        return 4
    logs = os.path.join(run_dir, "logs")
    os.makedirs(logs, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    log = os.open(os.path.join(logs, f"rank{rank}.log"), flags, 0o644)
    child = Child([sys.executable, "-u", *argv], log)
    os.close(log)
    return record(run_dir, rank, child, child.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
