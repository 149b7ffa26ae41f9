"""Who may run while the kernel kills for want of memory: it counts such kills by host, not by whom they hit."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 600.0


@contextmanager
def kernel_kills(*, brought_about: bool) -> Iterator[None]:
    """Alone for a test that has the kernel kill; together with all others for one that kills by itself."""
    path = Path(tempfile.gettempdir()) / f"trainmark-tests-{os.getuid()}-kernel-kills"
    with path.open("a") as file:
        deadline = time.monotonic() + PATIENCE_S
        while not _locked(file.fileno(), fcntl.LOCK_EX if brought_about else fcntl.LOCK_SH):
            assert time.monotonic() < deadline, f"{path} was held for {PATIENCE_S:g} s"
            time.sleep(0.05)
        yield


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
