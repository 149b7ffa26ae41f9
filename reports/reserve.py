"""Room that a session keeps for its own reports: a run that fills the disk must not take its verdict with it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BYTES = 1 << 20


class Reserve:
    """A hidden file in the session's folder, given up for what else would find no room."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".reserve"
        self._held = False

    def hold(self) -> None:
        """Take the room, if the disk has it; idempotent."""
        if self._held:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                os.posix_fallocate(descriptor, 0, BYTES)
                self._held = True
            finally:
                os.close(descriptor)

    def give_up(self) -> bool:
        """Free the room; whether there was any."""
        held, self._held = self._held, False
        if held:
            with contextlib.suppress(OSError):
                self._path.unlink()
        return held
