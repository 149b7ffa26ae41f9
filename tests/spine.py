"""The real suite as its user runs it, in a copy of the checkout that a test may change."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IGNORED = shutil.ignore_patterns("__pycache__", "results", ".*")
GLM = "glm-pytorch-cpu-host-mini"
BRIEF_BASE = ("--set", "throughput_steps=8", "--set", "throughput_warmup_steps=2")
"""Options of a test that is not about speedup: the runs of the base end after a few steps."""


@dataclass(frozen=True)
class Clone:
    """A copy of the checkout, in a folder whose name has a blank."""

    root: Path

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """`pytest suite --vendor cpu ARGV` into the session folder `s`, in a process group of its own."""
        command = [sys.executable, "-m", "pytest", "suite", "--vendor", "cpu", "-p", "no:cacheprovider", *argv]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.Popen(
            command, cwd=self.root, env=env, start_new_session=True, preexec_fn=_at_a_terminal, **pipes
        )

    def run(self, *argv: str, timeout_s: float = 900) -> tuple[int, str]:
        """(exit code, output) of the same."""
        process = self.start(*argv)
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out

    def reports(self, *argv: str) -> tuple[int, str]:
        """(exit code, output) of `python -m reports ARGV`."""
        done = subprocess.run(
            [sys.executable, "-m", "reports", *argv], cwd=self.root, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def result(self, session: str, plan: str) -> dict[str, Any]:
        """result.json of a plan."""
        return dict(json.loads((self.root / session / plan / "result.json").read_text()))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text that must be there."""
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r}"
        file.write_text(text.replace(old, new, 1))


def _at_a_terminal() -> None:
    """Ctrl-C counts, also where these tests were started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def clone(folder: Path) -> Clone:
    """Copy what the suite needs to run."""
    root = folder / "a clone"
    root.mkdir()
    for name in ("suite", "fixtures", "reports"):
        shutil.copytree(ROOT / name, root / name, ignore=IGNORED)
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(ROOT / name, root / name)
    return Clone(root)


def check_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """The check of that name."""
    return next(check for check in result["checks"] if check["name"] == name)


def tagged(text: str) -> list[int]:
    """Live processes whose environment names `text`: what a run left behind."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if stat[0] != "Z" and b"TRAINMARK_RUN" in environment and text.encode() in environment:
                found.append(int(entry.name))
    return found


def await_event(session: Path, event: str, *, rank: int = 0, timeout_s: float = 120) -> None:
    """Return once the stream of `rank` shows `event`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for stream in session.glob(f"*/r1/events/rank{rank}.jsonl"):
            if f'"event":"{event}"' in stream.read_text().replace(" ", ""):
                return
        time.sleep(0.1)
    raise AssertionError(f"no {event} of rank {rank} under {session} within {timeout_s} s")
