"""Ports for ranks that will meet a little later.

Not those that Linux gives to whoever asks for any: between the asking and the meeting somebody else is given them, the
ranks' own connections of the training before among them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fixtures.node.ports import take_port


@contextlib.contextmanager
def meeting_ports(count: int = 1) -> Iterator[list[int]]:
    """So many ports of this host that nobody else is given here, in whatever process of whatever test."""
    folder = Path(tempfile.gettempdir()) / "trainmark-test-ports"
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            port, descriptor = take_port(folder, 0)
            stack.callback(os.close, descriptor)
            ports.append(port)
        yield ports
