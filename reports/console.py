"""How the commands speak: lines that are harmless to a terminal, in its encoding; or a file."""

from __future__ import annotations

import sys
from pathlib import Path

from reports.atomic import refuse_device, replace_file
from reports.escape import for_terminal


def say(text: str, *, error: bool = False) -> None:
    """Print `text` to standard output, or to standard error."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "ascii"
    for line in text.split("\n"):
        print(for_terminal(line, encoding), file=stream, flush=True)


def deliver(text: str, output: Path | None) -> None:
    """`text` into the file `output`, whose name is then said; without one, to standard output. Raises OSError."""
    if output is None:
        say(text.rstrip("\n"))
        return
    refuse_device(output)
    replace_file(output, (text.rstrip("\n") + "\n").encode("utf-8", "backslashreplace"))
    say(str(output))
