"""Ctrl-C, SIGTERM and impatience: clean-up is done, every plan has its outcome, the exit code is 2."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.signals import Interrupts
from tests.user_toy import Checkout

ONE = "toy-pytorch-cpu-host-mini-1x1"
TWO = "toy-pytorch-cpu-host-mini-1x2"
NODES = "toy-pytorch-cpu-host-mini-2x1"
PATIENCE_S = 60.0


@contextmanager
def started(checkout: Checkout, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A pytest that is ended with the test, whatever happens."""
    process = subprocess.Popen(
        checkout.command("suite", "--vendor", "cpu", "--session", "out", *arguments),
        cwd=checkout.root, env=checkout.variables(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


def wait_for(*paths: Path) -> None:
    """Until all of these are there."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"none of {paths} appeared"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_settles_every_plan(checkout: Checkout, number: signal.Signals) -> None:
    """The running plan is interrupted and cleaned up, the later ones were never started."""
    checkout.behave(mini_1x2="sleep")
    out = checkout.root / "out"
    with started(checkout) as process:
        wait_for(out / TWO / "asleep")
        process.send_signal(number)
        text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, text
    assert (out / TWO / "cleaned").exists()
    assert checkout.outcomes(out) == {
        ONE: "passed",
        TWO: "error: interrupted",
        NODES: "not_started: interrupted",
    }
    finished = [record for record in checkout.records(out) if record["kind"] == "session"][-1]
    assert finished["exit_status"] == 2


def test_a_second_signal_does_not_break_the_clean_up(checkout: Checkout) -> None:
    """Impatience changes nothing: the clean-up goes on to its end."""
    checkout.behave(mini_1x1="sleep")
    out = checkout.root / "out"
    with started(checkout) as process:
        wait_for(out / ONE / "asleep")
        process.send_signal(signal.SIGTERM)
        for _ in range(3):
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, text
    assert (out / ONE / "cleaned").exists()
    assert checkout.outcomes(out)[ONE] == "error: interrupted"


def test_workers_are_told_at_once(checkout: Checkout) -> None:
    """A signal to the controller alone ends the plans of both workers, cleaned up, before xdist loses patience."""
    checkout.behave(toy="sleep")
    out = checkout.root / "out"
    with started(checkout, "-n", "2") as process:
        deadline = time.monotonic() + PATIENCE_S
        while len(asleep := sorted(out.glob("*/asleep"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, text
    outcomes = checkout.outcomes(out)
    for marker in asleep:
        assert marker.with_name("cleaned").exists()
        assert outcomes[marker.parent.name] == "error: interrupted"
    assert sorted(outcomes.values())[-1] == "not_started: interrupted"
    assert len(outcomes) == 3


def test_handlers_are_given_back() -> None:
    """After the session, signals mean what they meant before; a first one raises, a second one does not."""
    before = signal.getsignal(signal.SIGTERM)
    interrupts = Interrupts()
    interrupts.install(keep_sigint=True)
    try:
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.name == "SIGTERM"
    finally:
        interrupts.restore()
    assert signal.getsignal(signal.SIGTERM) is before
