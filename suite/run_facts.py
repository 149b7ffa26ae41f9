"""The environment of a run: what the harness wrote down, and what the ranks found from inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from suite.harness_log import read_object
from suite.rank_stream import RankStream
from suite.rank_totals import RankTotals

HEADER = ("device", "framework", "precision", "fallbacks", "slots", "numa", "timer", "transport", "versions")
"""Keys of rank 0's header that describe where it ran. An allow list: events come from code under test."""


def environment_of(run_dir: Path, first: RankStream | None, totals: RankTotals | None) -> dict[str, object]:
    """environment.json, rank 0's header by HEADER, hosts and devices of all; of a run that hung, the triage too."""
    facts: dict[str, object] = dict(read_object(run_dir / "environment.json"))
    if first is not None:
        header: Mapping[str, object] = first.header.data
        facts |= {key: header[key] for key in HEADER if key in header}
    if totals is not None:
        facts |= {"hosts": list(totals.hosts), "device_names": list(totals.devices)}
    if triage := _triage(run_dir):
        facts["triage"] = triage
    if "driver_version" in facts:
        facts.setdefault("device_driver", facts["driver_version"])
    return facts


def _triage(run_dir: Path) -> dict[str, object]:
    """What the harness found before it ended a run that hung; the stacks stay in triage.json."""
    found = dict(read_object(run_dir / "triage.json"))
    standings = found.get("ranks")
    if isinstance(standings, list):
        found["ranks"] = [
            {key: value for key, value in standing.items() if key != "stack"}
            for standing in standings
            if isinstance(standing, dict)
        ]
    return found
