"""`python with_log.py SCRIPT …`: the script as a child, its output passed on and read by adapters, which tell events.

Evidence `log`: nothing of the script is touched, and no more is known of it than it prints. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from typing import Any, Dict, List

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[0] = ROOT  # as a script this folder would come first, and its module names would hide others

from suite.drivers.events import RunProblem  # noqa: E402
from suite.drivers.rank import Child  # noqa: E402
from suite.drivers.scripts.adapters import ADAPTERS, adapter_of  # noqa: E402
from suite.drivers.scripts.adapters.reader import LogReader  # noqa: E402
from suite.drivers.scripts.invocation import (  # noqa: E402
    EXIT_ENVIRONMENT,
    EXIT_EXCEPTION,
    EXIT_USAGE,
    Invocation,
    plain_header,
)
from suite.drivers.scripts.last_words import LastWords  # noqa: E402

DRAIN_S = 2.0
"""After the script has left: its own children may hold the pipe open, and what they print is nobody's."""

_CHUNK = 64 << 10
_MODEL_PARALLEL = ("tensor_parallel", "pipeline_parallel", "context_parallel")


class LogRun:
    """One rank: the script, its log, the events that rank 0's log tells."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._run, self._place, self._writer = invocation.run, invocation.place, invocation.writer
        batch = _global_batch(self._run)
        self._reader = LogReader(adapter_of(self._run.script.adapters, batch=batch))
        self._batch = batch
        self._words = LastWords()
        self._problem = ""
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._step = 0
        self._last = 0.0
        """Time of the last event."""

    def train(self) -> int:
        """Run the script to its end; the exit status for the wrapper, or the signal that ended the script."""
        read, write = os.pipe()
        self._invocation.tell("init_start")
        child = Child([sys.executable, "-u", self._invocation.path, *self._invocation.arguments], write)
        os.close(write)
        self._child = child
        reading = threading.Thread(target=self._read, args=(read,), name="log", daemon=True)
        reading.start()
        code = child.wait()
        self._left.set()
        reading.join(DRAIN_S + 1.0)
        return self._end(code)

    def _read(self, pipe: int) -> None:
        """Pass on what arrives and feed the adapters, until the pipe ends or the script has left for a while."""
        beat = time.monotonic() + self._run.heartbeat_s
        due = float("inf")
        while time.monotonic() < due:
            if self._left.is_set() and due == float("inf"):
                due = time.monotonic() + DRAIN_S
            ready, _, _ = select.select([pipe], [], [], 0.2)
            if ready:
                data = os.read(pipe, _CHUNK)
                if not data:
                    break
                _pass_on(data)
                self._words.feed(data)
                if self._place.rank == 0:
                    self._tell(self._reader.feed(data, time.monotonic()))
            if time.monotonic() >= beat:
                self._last = time.monotonic()
                self._writer.write("heartbeat", step=self._step, phase="script", t=round(self._last, 6))
                beat = self._last + self._run.heartbeat_s
        os.close(pipe)

    def _tell(self, events: List[Dict[str, Any]]) -> None:
        with self._lock:
            for event in events:
                if event["event"] == "run_start":
                    self._problem = self._problem or self._contradiction(event)
                    if self._problem:
                        os.kill(self._child.pid, signal.SIGTERM)
                if event["event"] == "steps":
                    self._step = event["first"] + event["count"] - 1
                if event["event"] == "eval_result":
                    event = dict(event, met=self._met(event["metrics"]))
                    if self._run.quality.metric not in event["metrics"]:
                        continue  # of this evaluation the case's own measure is not known
                # What is told of a moment before the last heartbeat comes after it in the stream.
                self._last = max(self._last, float(event["t"]))
                self._writer.write(**dict(event, t=round(self._last, 6)))

    def _contradiction(self, start: Dict[str, Any]) -> str:
        """The sentence where the log speaks of another number of ranks than the plan."""
        planned = self._place.world_size
        for name in _MODEL_PARALLEL:
            planned //= max(int(self._run.params.get(name, 1) or 1), 1)
        seen = start.get("data_parallel")
        if seen is not None and seen != planned:
            return "the script's log tells of %d ranks in its batch sizes where the plan has %d" % (seen, planned)
        batch = start.get("global_batch")
        if batch is not None and self._batch is not None and batch != self._batch:
            return "the script's log says a global batch of %d where the plan has %d" % (batch, self._batch)
        return ""

    def _met(self, metrics: Dict[str, Any]) -> bool:
        quality, value = self._run.quality, metrics.get(self._run.quality.metric)
        if value is None:
            return False
        return bool(value >= quality.target if quality.better == "higher" else value <= quality.target)

    def _end(self, code: int) -> int:
        """The last events, and how the wrapper itself leaves: as the script did."""
        if self._problem:
            self._invocation.stop("aborted", "environment", self._problem, self._step)
            return EXIT_ENVIRONMENT
        if code < 0 and -code not in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            _die_by(-code)  # a rank that was killed has no last word
        last: Dict[str, Any] = {}
        if self._place.rank == 0:
            events = self._reader.finish(code, time.monotonic())
            self._tell([event for event in events if event["event"] != "run_stop"])
            last = next((event for event in events if event["event"] == "run_stop"), {})
        elif code == 0:
            last = {"status": "success", "reason": "max_steps"}
        if not last:
            how = "signal" if code < 0 else "exception"
            last = {"status": "aborted", "reason": how, "detail": "the script left with status %d" % code}
        if code > 0 and last["reason"] == "exception":
            last = dict(last, detail=_with_words(last["detail"], self._words.said()))
        kept = {key: value for key, value in last.items() if key not in ("event", "t")}
        self._invocation.stop(**dict({"detail": ""}, **kept))
        if code < 0:
            _die_by(-code)
        return code or (EXIT_EXCEPTION if last["status"] == "aborted" else 0)


def _global_batch(run: Any) -> Any:
    """Samples of one step of all ranks, as planned; None: the plan does not say."""
    if isinstance(run.params.get("global_batch_size"), int):
        return run.params.global_batch_size or None
    sizes = [run.params.get(key, 1) for key in ("train_batch_size", "gradient_accumulation_steps")]
    if "train_batch_size" not in run.params or not all(isinstance(size, int) for size in sizes):
        return None
    total = sizes[0] * sizes[1] * run.expect.world_size
    for name in _MODEL_PARALLEL:
        total //= max(int(run.params.get(name, 1) or 1), 1)
    return total


def _with_words(detail: str, said: str) -> str:
    return "%s: %s" % (detail, said) if said else detail


def _pass_on(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _die_by(number: int) -> None:
    """End this process by the signal that ended the script, so that the record of the rank tells it."""
    sys.stdout.flush()
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(words: List[str]) -> int:
    """Run the script that `words` name; the exit status."""
    try:
        invocation = Invocation(words)
    except RunProblem as problem:
        print(problem, file=sys.stderr)
        return EXIT_USAGE
    plain_header(invocation)
    fewer = invocation.world_problem()
    if fewer:
        print(fewer, file=sys.stderr)
        invocation.stop("aborted", "environment", fewer)
        return EXIT_ENVIRONMENT
    try:
        invocation.prepare()
        unknown = [name for name in invocation.run.script.adapters if name not in ADAPTERS]
        if unknown:
            raise RunProblem(
                "no adapter is called %r: name one of %s in [script] adapters" % (unknown[0], ", ".join(ADAPTERS))
            )
        return LogRun(invocation).train()
    except RunProblem as wrong:
        print(wrong, file=sys.stderr)
        invocation.stop("aborted", "config", str(wrong))
        return EXIT_EXCEPTION


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
