"""The thread that shows a rank is alive, and that ends it properly when told to, also while a collective hangs.

A Python signal handler runs only between the main thread's instructions. The byte that the interpreter writes into
the wake-up pipe comes at once, so this thread, not the handler, answers SIGTERM and SIGINT.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from suite.drivers.events import EventWriter

ENDING = (signal.SIGTERM, signal.SIGINT)


class Pulse:
    """Heartbeats every `period_s`; `run_stop aborted signal` and exit 128+n on SIGTERM or SIGINT.

    On SIGUSR1 the stacks of all threads go to stderr, also where one holds the interpreter, and `on_ask` is called.
    SIGUSR2 asks for a checkpoint: `take_save` tells it to the loop, which saves where all ranks stand at one step.
    """

    def __init__(
        self,
        writer: EventWriter,
        period_s: float,
        progress: Callable[[], tuple[int, int]],
        on_ask: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._period_s = max(0.05, period_s)
        self._progress = progress
        self.phase = "init"
        self._save = False
        self._on_ask = on_ask
        signal.signal(signal.SIGUSR1, _leave_to_thread)
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True, chain=True)
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        self._write = write
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in ENDING:
            signal.signal(number, _leave_to_thread)
        signal.signal(signal.SIGUSR2, self._ask_for_save)
        # Loader processes are forked from here: their signals are not ours.
        os.register_at_fork(after_in_child=_forget)
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        due = time.monotonic() + self._period_s
        while True:
            ready, _, _ = select.select([self._read], [], [], max(0.0, due - time.monotonic()))
            if ready:
                for number in os.read(self._read, 64):
                    if number == 0:
                        return
                    if number in ENDING:
                        self._end(number)
                    if number == signal.SIGUSR1:
                        self._on_ask()
            if time.monotonic() >= due:
                step, _ = self._progress()
                self._writer.write("heartbeat", step=step, phase=self.phase)
                due = time.monotonic() + self._period_s

    def _end(self, number: int) -> None:
        step, samples = self._progress()
        detail = f"{signal.Signals(number).name} in phase {self.phase}"
        write_stop(self._writer, "aborted", "signal", detail, step, samples)
        sys.stdout.flush()
        os._exit(128 + number)

    def _ask_for_save(self, number: int, frame: Any) -> None:
        self._save = True

    def take_save(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        asked, self._save = self._save, False
        return asked

    def stop(self) -> None:
        """No more heartbeats; signals end the process as they do by default."""
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.write(self._write, b"\0")
        self._thread.join(timeout=5)
        os.close(self._write)
        os.close(self._read)


def _leave_to_thread(number: int, frame: Any) -> None:
    """The pulse's thread answers; this only keeps the default action away."""


def _forget() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        for number in ENDING:
            if signal.getsignal(number) is _leave_to_thread:
                signal.signal(number, signal.SIG_DFL)


def write_stop(writer: EventWriter, status: str, reason: str, detail: str, step: int, samples: int) -> bool:
    """The last line of a rank."""
    return writer.write(
        "run_stop",
        status=status,
        reason=reason,
        detail=detail,
        step=step,
        samples=samples,
        t_wall=time.time(),
        t_mono=time.monotonic(),
    )
