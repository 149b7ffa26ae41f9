"""A toy checkout under a scripted scheduler: jobs that own their lives, and whoever collects them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from fixtures.faults.checkout import MARK, ToyCheckout
from fixtures.faults.scheduler import FakeSlurm
from fixtures.node import processes
from tests.launch_toy import until

PENDING = {"JobState": "PENDING", "Reason": "Priority"}
RUNNING = {"JobState": "RUNNING", "Reason": "None", "NodeList": "f[1-2]", "TRES": "cpu=2,node=2"}

SITE = """
[launch]
launcher = "slurm"
[lease]
dir = "leases"
[slurm]
poll_s = 0.5
"""


class Lab:
    """A toy checkout, and a scheduler that is scripted."""

    def __init__(self, root: Path) -> None:
        self.toy = ToyCheckout(root / "a clone")
        self.toy.write("site.toml", SITE)
        self.slurm = FakeSlurm(root / "slurm")
        self.toy.variables["PATH"] = f"{self.slurm.bin}:{os.environ['PATH']}"

    def submit(self, *more: str, script: str = "") -> int:
        """Two nodes, by --submit."""
        return self.toy.run(self.toy.command("--submit", *more, topology="2x1", script=script))

    def attach(self, *more: str) -> int:
        """Collect them."""
        (self.toy.root / "output").unlink(missing_ok=True)
        return self.toy.run([*self.attaching(), *more])

    def attaching(self) -> list[str]:
        """The argument list that collects."""
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suite"]
        return [*argv, "--attach", str(self.toy.results)]

    def end(self) -> None:
        """No job, no process of the checkout is left."""
        self.slurm.down()
        until(lambda: not marked(self.toy.mark))

    def result(self) -> dict[str, Any]:
        """The one result of session.json."""
        (result,) = self.toy.session()["results"]
        found: dict[str, Any] = result
        return found

    def outcome(self) -> str:
        """`status: category` of it."""
        outcome = self.result()["outcome"]
        return ": ".join(filter(None, (outcome["status"], outcome["category"])))


def marked(mark: str) -> list[int]:
    """Living processes that were started from the checkout."""
    return [
        process.pid
        for process in processes.snapshot().values()
        if process.state not in "ZX" and processes.environment(process.pid).get(MARK) == mark
    ]
