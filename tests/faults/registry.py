"""All faults by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import agents, devices, orphans, ranks, sessions, storage, streams
from tests.faults.fault import Fault

GROUPS: Mapping[str, tuple[Fault, ...]] = {
    "Ranks that die or hang": ranks.FAULTS,
    "Numbers, streams and logs that cannot be trusted": streams.FAULTS,
    "Launchers, agents, leases and ports": agents.FAULTS,
    "Devices and what tells of them": devices.FAULTS,
    "What ranks leave behind": orphans.FAULTS,
    "Disks, folders and files": storage.FAULTS,
    "pytest itself": sessions.FAULTS,
}
"""Title of a part of the table -> its faults."""

FAULTS: Mapping[str, Fault] = {fault.name: fault for group in GROUPS.values() for fault in group}
