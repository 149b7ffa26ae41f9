"""What ranks leave behind, for the agent to end."""

from __future__ import annotations

import json

from tests.faults.fault import PASSED, Act, Fault
from tests.faults.scene import Scene


def killed(count: int) -> Act:
    """The agent had to end so many processes, and says so."""

    def check(scene: Scene) -> None:
        lines = [json.loads(line) for line in scene.log("harness.jsonl").splitlines()]
        ended = [process for line in lines if line["event"] == "node_exit" for process in line["killed"]]
        assert len(ended) >= count, lines

    return check


FAULTS = (
    Fault(
        name="orphans",
        what="grandchildren in sessions of their own outlive a rank",
        script="orphan=2@end",
        check=killed(2),
        **PASSED,
    ),
    Fault(
        name="orphans_of_killed",
        what="the same, and the rank is killed",
        script="orphan=2@20,signal_self=KILL@20",
        check=killed(2),
        expect="error: crash",
        exit=1,
        rank=0,
    ),
    Fault(
        name="orphan_untagged",
        what="a daemon that has wiped its environment outlives a rank",
        script="untagged_orphan@end",
        check=killed(1),
        **PASSED,
    ),
    Fault(
        name="orphan_deaf",
        what="a daemon that ignores SIGTERM outlives a rank",
        script="deaf_orphan@end",
        check=killed(1),
        **PASSED,
    ),
    Fault(
        name="orphan_breeds",
        what="a daemon that forks when it is asked to end",
        script="breed@end,pause=0.5@end",
        check=killed(1),
        **PASSED,
    ),
    Fault(
        name="orphan_listens",
        what="a daemon keeps the rendezvous port open",
        script="listen@end",
        check=killed(1),
        **PASSED,
    ),
    Fault(
        name="zombies",
        what="fifty children that nobody waits for",
        script="zombies=50@20",
        **PASSED,
    ),
)
