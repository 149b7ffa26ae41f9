"""Heartbeats of a script's rank, held back where they would come before what happened before them."""

import threading


class Heartbeats:
    """The stream as the pulse sees it: it keeps still from a window's end until the window is written with its loss."""

    def __init__(self, writer):
        self._writer = writer
        self._lock = threading.Lock()
        self._still = False

    def begin(self):
        """A window ends now."""
        with self._lock:
            self._still = True

    def end(self):
        """It is written."""
        with self._lock:
            self._still = False

    def write(self, event, **keys):
        """As EventWriter's."""
        with self._lock:
            return (self._still and event == "heartbeat") or self._writer.write(event, **keys)
