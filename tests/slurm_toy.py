"""A toy training on the nodes of a Slurm cluster, real or fake, for tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fixtures.site import Launch, Lease, Site
from fixtures.slurm_site import SlurmTable
from fixtures.training import Runs, Trainer
from suite.outcome import Outcome
from suite.plan import Deadlines
from tests.launch_toy import TRAIN, Watcher, toy_plan, trainer
from tests.run_folders import read_lines

ENDLESS = TRAIN + "steps()\nwhile True:\n    say('heartbeat', step=1); time.sleep(0.1)\n"
DEADLINES = Deadlines(provision_s=60, launch_s=60, first_step_s=60, no_progress_s=300, total_s=600, teardown_s=10)


def slurm_site(folder: Path, **table: Any) -> Site:
    """A site that asks Slurm, at a brisk pace."""
    return Site(
        launch=Launch(launcher="slurm"),
        lease=Lease(dir=str(folder / "leases")),
        slurm=SlurmTable(**{"poll_s": 0.5, "queue_s": 60.0, "margin_s": 0.0, **table}),
    )


def slurm_trainer(folder: Path, progress: Watcher | None = None, **table: Any) -> Trainer:
    """A Trainer under Slurm, with the toy's launcher."""
    return trainer(folder, progress, site=slurm_site(folder, **table))


def two_nodes(folder: Path, train: str, **over: Any) -> Any:
    """A toy plan of two nodes."""
    return toy_plan(folder, train, **{"topology": "2x1", "deadlines": DEADLINES, **over})


def ended(runs: Runs, run: str = "r1") -> Outcome:
    """How a run ended; where there is none, what was settled."""
    path = runs.folder / run / "harness.jsonl"
    lines = read_lines(path) if path.is_file() else []
    found = [line for line in lines if line["event"] == "ended"]
    keys = ("status", "category", "reason", "rank", "log_tail")
    if found:
        return Outcome.model_validate({key: found[-1][key] for key in keys})
    return settled(runs)


def settled(runs: Runs) -> Outcome:
    """What was settled for the plan."""
    lines = [line for line in read_lines(runs.folder / "harness.jsonl") if line["event"] == "settled"]
    return Outcome.model_validate(lines[-1]["outcome"])


class AtFirstStep(Watcher):
    """Does something once, when rank 0 has made its first step."""

    def __init__(self, act: Any) -> None:
        self.done = False
        self.at = 0.0

        def once(rank: int, event: Any) -> None:
            if rank == 0 and event["event"] == "steps" and not self.done:
                self.done, self.at = True, time.monotonic()
                act()

        super().__init__(once)
