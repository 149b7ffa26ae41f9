"""MLPerf's own compliance checker, in a process of its own: it keeps state, and evaluates its rules as code."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from suite.errors import UsageProblem

DEADLINE_S = 120.0


class Official(NamedTuple):
    """What the checker said of one file."""

    accepted: bool
    text: str
    """Its last lines."""


def installed() -> bool:
    """The extra `mlperf` is there."""
    return find_spec("mlperf_logging") is not None


def check_officially(path: Path, ruleset: str) -> Official:
    """Run the checker on one log by the named rule set. Raises UsageProblem where it is absent or crashes."""
    if not installed():
        raise UsageProblem("--ruleset: the package mlperf-logging is not installed; install the extra `mlperf`")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-W", "ignore", "-m", "mlperf_logging.compliance_checker", "--usage", "training",
            "--ruleset", ruleset, "--log_output", str(Path(folder) / "out.log"), str(path.absolute()),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            raise UsageProblem(f"{path}: the official checker took over {DEADLINE_S:.0f} s; check the file") from None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    # A crash leaves with 1 as a refusal does: only the text tells them apart.
    if "SUCCESS" not in text and "FAILED" not in text:
        last = text.strip().splitlines()[-1:] or ["no output"]
        raise UsageProblem(
            f"{path}: the official checker has no verdict by rule set {ruleset} ({last[0]}); name another"
        )
    return Official(done.returncode == 0 and "SUCCESS" in text, "\n".join(text.strip().splitlines()[-12:]))
