"""Room that a session keeps for its own reports: a run that fills the disk must not take its verdict with it."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from reports.places import is_session

BYTES = 1 << 20

FORMER_NAME = ".reserve"
"""What the file was called while it had a name: sessions that were killed have left some."""


class Reserve:
    """A file without a name in the session's folder, given up for what else would find no room.

    The kernel frees it with the process, however that ends: nobody has to clean up after a session that was killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: contextlib.ExitStack | None = None

    def hold(self) -> None:
        """Take the room, if the disk has it; idempotent."""
        if self._held is not None:
            return
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile(dir=self._folder, prefix=f"{FORMER_NAME}-"))
            os.posix_fallocate(file.fileno(), 0, BYTES)
            self._held = stack.pop_all()
            remove_former(self._folder.parent)

    def give_up(self) -> bool:
        """Free the room; whether there was any."""
        held, self._held = self._held, None
        if held is None:
            return False
        with contextlib.suppress(OSError):
            held.close()
        return True


def remove_former(results: Path) -> None:
    """Remove the named files that killed sessions below `results` have left.

    A session of an earlier version that still runs loses no more than its reserve.
    """
    for path in results.glob(f"*/{FORMER_NAME}"):
        with contextlib.suppress(OSError):
            ours = is_session(path.parent) and stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size == BYTES
            if ours:
                path.unlink()
