"""Memory of the harness while a run logs 2 GB: `python benchmarks/log_flood.py [MIB]`. Each process may take 300 MB."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from fixtures.faults.checkout import MARK, ToyCheckout  # noqa: E402
from fixtures.node import processes  # noqa: E402
from suite.drivers.command_line import Parser  # noqa: E402

LIMIT_MB = 300.0
LONGEST_S = 600.0
WINDOWS = 6
"""Of the fake training."""
ROLES = {"pytest": "pytest", "agent.py": "agent"}
"""Word in a command line -> what it is; whatever else runs belongs to the training."""


def peaks(checkout: ToyCheckout) -> dict[str, float]:
    """The highest resident set so far, in MB, of every living process of the harness, by role and pid."""
    found = {}
    for process in processes.snapshot().values():
        words = " ".join(processes.command(process.pid))
        role = next((role for word, role in ROLES.items() if word in words), None)
        if role is None or processes.environment(process.pid).get(MARK) != checkout.mark:
            continue
        for line in status(process.pid):
            if line.startswith("VmHWM:"):
                found[f"{role} {process.pid}"] = int(line.split()[1]) / 1024
    return found


def status(pid: int) -> list[str]:
    """The lines of /proc/PID/status; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def main() -> int:
    """Print the peaks; 1 if one exceeds the limit, or the run did not pass."""
    parser = Parser(description=__doc__)
    parser.add_argument("mib", type=int, nargs="?", default=2048, help="of log, in MiB")
    mib = parser.parse_args().mib
    with tempfile.TemporaryDirectory() as folder:
        checkout = ToyCheckout(Path(folder) / "checkout", deadlines={"total_s": LONGEST_S})
        seen: dict[str, float] = {}
        due = time.monotonic() + LONGEST_S
        with checkout.start(checkout.command(script=f"flood={mib // WINDOWS}")) as process:
            while process.poll() is None and time.monotonic() < due:
                seen.update(peaks(checkout))
                time.sleep(0.05)
            process.kill()
        log = next(checkout.results.glob("toy-*/r1/logs/rank0.log"), None)
        size = log.stat().st_size if log else 0
    if process.returncode or not seen:
        print(f"the run did not pass (exit {process.returncode})")
        return 1
    worst = max(seen, key=lambda name: seen[name])
    print(f"{size / 1e6:.0f} MB of log; at most {seen[worst]:.0f} MB in one process ({worst}), limit {LIMIT_MB:g} MB")
    for name, peak in sorted(seen.items()):
        print(f"  {name}: {peak:.0f} MB")
    return 0 if seen[worst] <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
