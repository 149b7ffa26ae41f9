"""Foreign work on the leased devices while the clock was running: such a measurement is void."""

from __future__ import annotations

from pathlib import Path

from suite.monitor_log import samples
from suite.outcome import Outcome


def contamination(run_dir: Path, window: tuple[float, float]) -> Outcome | None:
    """`failed: invalid_measurement` if the monitor saw a foreign process on a device in [start, stop] (wall clock)."""
    for path in sorted(run_dir.glob("monitor*.jsonl")):
        for t_wall, identity, sample in samples(path):
            foreign = sample.get("foreign")
            if isinstance(foreign, list) and foreign and window[0] <= t_wall <= window[1]:
                first = foreign[0] if isinstance(foreign[0], dict) else {}
                who = f"{first.get('name', 'unnamed')} (pid {first.get('pid', 'unknown')})"
                more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
                reason = f"contaminated: another process used device {identity} in the timed window: {who}{more}"
                return Outcome(status="failed", category="invalid_measurement", reason=reason)
    return None
