"""`python -m tests.faults NAME …`: bring faults about in a temporary checkout, and print what came of each."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from suite.errors import did_you_mean
from tests.faults.fault import Fault
from tests.faults.registry import FAULTS
from tests.faults.scene import Scene

LINES = 40
"""Of pytest's output, of a fault that ended otherwise than it should."""


def main(names: list[str]) -> int:
    """1 if an outcome is not the expected one, or something was left."""
    for name in names:
        if name not in FAULTS:
            print(f"no fault {name!r}{did_you_mean(name, FAULTS)}", file=sys.stderr)
            return 4
    good = [bring_about(FAULTS[name]) for name in names or FAULTS]
    return 0 if all(good) else 1


def bring_about(fault: Fault) -> bool:
    """Play one fault and print its row; whether all was as it should."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(fault, Path(folder) / "checkout")
        try:
            row = scene.play()
        except AssertionError as problem:
            print(f"{fault.name}: {problem}")
            return False
        wrong = fault.differences(row)
        print(f"{row.name}: {row.outcome}, exit {row.exit}, {row.verdict_s} s: {row.reason}")
        for line in row.injected:
            print(f"  {line['what']} (pid {line['pid']})")
        for difference in wrong:
            print(f"  NOT AS IT SHOULD BE: {difference}")
        if wrong:
            print("\n".join(scene.checkout.output.splitlines()[-LINES:]))
        return not wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
