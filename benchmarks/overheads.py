"""What the harness costs, side by side: `python -m benchmarks.overheads [NAME …]`, from the repository's root.

Without a name all of them, one after the other; docs/overheads.md says what each stands for and what it should cost.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time
from collections.abc import Sequence

NAMES = ("launch", "loop", "monitor", "events", "collection", "reports", "imports")
"""Each is `measure()` of `benchmarks/overhead_<name>.py`, and takes some three minutes at most."""


def main(names: Sequence[str]) -> int:
    """Print what was measured, or how to ask; 4 for a name that is none."""
    if {"-h", "--help"} & set(names):
        print(__doc__, f"The names are {', '.join(NAMES)}.", sep="\n")
        return 0
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"error: no overhead is called {unknown[0]!r}; the names are {', '.join(NAMES)}", file=sys.stderr)
        return 4
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {time.strftime('%Y-%m-%d')}")
    for name in names or NAMES:
        begin = time.monotonic()
        lines = importlib.import_module(f"benchmarks.overhead_{name}").measure()
        print(f"\n{name} (measured for {time.monotonic() - begin:.0f} s)", *lines, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
