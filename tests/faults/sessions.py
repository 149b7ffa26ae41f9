"""pytest itself is told to end, or is killed."""

from __future__ import annotations

import signal
import time

from fixtures.node import processes
from tests.faults.fault import Act, Fault
from tests.faults.scene import Scene

ENDLESS = ("--set", "steps=100000")
UNTRAINED = "lie=quality/0.1"
PAUSE_S = 0.05
"""Between two signals: the clean-up has hardly begun."""


def pytest_gets(*numbers: signal.Signals) -> Act:
    """Signals to the controller while a plan trains."""

    def act(scene: Scene) -> None:
        scene.trains()
        for number in numbers:
            scene.signal(scene.process.pid, number, "pytest")
            time.sleep(PAUSE_S)

    return act


def kill_worker(scene: Scene) -> None:
    """The xdist worker that trains."""
    scene.trains()
    lease = scene.agents()["lease"]
    worker = processes.read(lease)
    assert worker is not None
    scene.signal(worker.parent, signal.SIGKILL, "the xdist worker")


def both_files_tell(scene: Scene) -> None:
    """session.json and junit.xml are complete although the session was ended."""
    session = scene.checkout.session()
    assert session["session"]["exit_status"] == 2
    assert [result["id"] for result in session["results"]] == session["selected"]
    assert scene.plan_id in (scene.checkout.results / "junit.xml").read_text(encoding="utf-8")


INTERRUPTED = {
    "arguments": ENDLESS,
    "script": UNTRAINED,
    "expect": "error: interrupted",
    "exit": 2,
    "check": both_files_tell,
}

FAULTS = (
    Fault(
        name="sigterm",
        what="pytest gets SIGTERM, as from a CI server",
        act=pytest_gets(signal.SIGTERM),
        says="SIGTERM",
        **INTERRUPTED,
    ),
    Fault(
        name="sigint",
        what="pytest gets SIGINT, as from Ctrl-C",
        act=pytest_gets(signal.SIGINT),
        says="SIGINT",
        **INTERRUPTED,
    ),
    Fault(
        name="sighup",
        what="pytest gets SIGHUP: the terminal or the ssh connection is gone",
        act=pytest_gets(signal.SIGHUP),
        says="SIGHUP",
        **INTERRUPTED,
    ),
    Fault(
        name="impatience",
        what="SIGINT, SIGINT and SIGTERM within a second",
        act=pytest_gets(signal.SIGINT, signal.SIGINT, signal.SIGTERM),
        says="SIGINT",
        **INTERRUPTED,
    ),
    Fault(
        name="sigterm_deaf_ranks",
        what="SIGTERM, and the ranks ignore it",
        topology="1x2",
        act=pytest_gets(signal.SIGTERM),
        **{**INTERRUPTED, "script": f"deafen,{UNTRAINED}"},
    ),
    Fault(
        name="sigterm_workers",
        what="pytest -n 2 gets SIGTERM",
        act=pytest_gets(signal.SIGTERM),
        **{**INTERRUPTED, "arguments": (*ENDLESS, "-n", "2")},
    ),
    Fault(
        name="sigkill",
        what="pytest is killed; the report is made afterwards by `python -m reports rebuild`",
        topology="1x2",
        act=pytest_gets(signal.SIGKILL),
        arguments=ENDLESS,
        script=UNTRAINED,
        rebuild=True,
        expect="error: worker_lost",
        exit=-9,
    ),
    Fault(
        name="sigkill_torchrun",
        what="pytest is killed, under the real torchrun",
        topology="1x2",
        act=pytest_gets(signal.SIGKILL),
        arguments=ENDLESS,
        script=UNTRAINED,
        real_launcher=True,
        rebuild=True,
        expect="error: worker_lost",
        exit=-9,
    ),
    Fault(
        name="sigkill_deaf_ranks",
        what="pytest is killed, and ranks and their daemons ignore SIGTERM",
        act=pytest_gets(signal.SIGKILL),
        arguments=ENDLESS,
        script=f"deafen,deaf_orphan,{UNTRAINED}",
        rebuild=True,
        expect="error: worker_lost",
        exit=-9,
    ),
    Fault(
        name="worker_killed",
        what="an xdist worker is killed",
        act=kill_worker,
        arguments=(*ENDLESS, "-n", "2"),
        script=UNTRAINED,
        expect="error: worker_lost",
        exit=1,
        says="SIGKILL",
    ),
    Fault(
        name="budget_too_small",
        what="a time budget in which the plan does not fit",
        arguments=("--time-budget", "1s"),
        expect="not_started: budget",
        exit=5,
        says="--time-budget",
    ),
)
