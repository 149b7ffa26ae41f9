"""One fault, brought about: a checkout, pytest in it, what is done to them meanwhile, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fixtures.faults.checkout import MARK, PATIENCE_S, ToyCheckout
from fixtures.faults.leftovers import wait_for_nothing
from fixtures.faults.trainer import report_fault
from fixtures.node import processes
from tests.faults.fault import Fault, Row
from tests.user_toy import LIGHT

T = TypeVar("T")


class Scene:
    """A running session with a fault in it."""

    def __init__(self, fault: Fault, root: Path) -> None:
        self.fault = fault
        self.checkout = ToyCheckout(root, deadlines=fault.deadlines, real_launcher=fault.real_launcher)
        self.checkout.variables |= LIGHT
        self.stack = contextlib.ExitStack()
        """What the fault arranged outside of the checkout is put right when it closes."""
        self.meanwhile = contextlib.ExitStack()
        """The same for what would be taken for something left; closed when pytest has ended."""
        self.process: subprocess.Popen[bytes]
        self.others: list[subprocess.Popen[bytes]] = []
        if fault.vendor == "zephyr":
            self.checkout.use_library()

    def play(self) -> Row:
        """Start pytest, do to it what the fault says, and see what is left when it has ended."""
        fault = self.fault
        with self.stack, self.meanwhile:
            if fault.before:
                fault.before(self)
            started, command = time.time(), self.command()
            self.process = self.checkout.start(command)
            self.stack.callback(self._end_all)
            if fault.act:
                fault.act(self)
            code = self.process.wait(PATIENCE_S)
            ended = time.time()
            for other in self.others:
                other.wait(PATIENCE_S)
            self.meanwhile.close()
            left, gone_s = wait_for_nothing(self.checkout)
            if fault.rebuild:
                self._rebuild()
            row = self._row(command, code, started, ended, tuple(left), gone_s)
            if fault.check:
                fault.check(self)
        return row

    def command(self, **changed: str) -> list[str]:
        """pytest's argument list."""
        fault = self.fault
        chosen = {"vendor": fault.vendor, "topology": fault.topology, "script": fault.script, **changed}
        further = [argument.replace("{root}", str(self.checkout.root)) for argument in fault.arguments]
        return self.checkout.command(*further, **chosen)

    # What a fault may ask.

    @property
    def plan_id(self) -> str:
        """The id of the plan."""
        return self.plan_folder.name

    @property
    def plan_folder(self) -> Path:
        """<session>/<id>, once it is there."""
        return self.wait_for(lambda: next(self.checkout.results.glob("toy-*/plan.json"), None), "a plan").parent

    @property
    def run_dir(self) -> Path:
        """The folder of the newest attempt, once it has a run.json."""
        return self.wait_for(lambda: max(self.plan_folder.glob("r*/run.json"), default=None), "a run").parent

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        """The events of a rank so far."""
        path = self.run_dir / "events" / f"rank{rank}.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def header(self, rank: int = 0) -> dict[str, Any]:
        """The first event of a rank, once it is there."""
        return self.wait_for(lambda: next(iter(self.events(rank)), None), f"the header of rank {rank}")

    def trains(self, rank: int = 0) -> None:
        """Wait until that rank has made steps, and the harness has seen its header."""
        self.wait_for(lambda: any(e["event"] == "steps" for e in self.events(rank)), f"steps of rank {rank}")
        self.wait_for(lambda: '"header_seen"' in self.log("harness.jsonl"), "the harness to see it")

    def log(self, name: str) -> str:
        """A file of the run, as text; empty where there is none."""
        path = self.run_dir / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def pids(self, *words: str) -> list[int]:
        """Processes of this scene whose command line holds all these words, oldest first."""
        return sorted(
            process.pid
            for process in processes.snapshot().values()
            if process.state not in "ZX"
            and all(word in " ".join(processes.command(process.pid)) for word in words)
            and processes.environment(process.pid).get(MARK) == self.checkout.mark
        )

    def agents(self) -> dict[str, int]:
        """Agents by their node's rank; `lease` holds the devices, `monitor 0` is the side process of node 0's."""
        found: dict[str, int] = {}
        for pid in self.pids("agent.py"):
            parent = processes.read(pid)
            forked = parent is not None and "agent.py" in " ".join(processes.command(parent.parent))
            node = processes.environment(pid).get(processes.NODE, "lease")
            found[f"monitor {node}" if forked else node] = pid
        return found

    def wait_for(self, look: Callable[[], T | None], what: str, limit_s: float = 40.0) -> T:
        """The first true answer; a scene that never comes to it has failed."""
        due = time.monotonic() + limit_s
        while not (found := look()):
            ended = getattr(self, "process", None) is not None and self.process.poll() is not None
            if ended or time.monotonic() > due:
                raise AssertionError(f"{self.fault.name}: waited for {what} in vain\n{self.checkout.output[-3000:]}")
            time.sleep(0.02)
        return found

    def pause(self) -> None:
        """Between two looks."""
        time.sleep(0.02)

    def signal(self, pid: int, number: int, whom: str) -> None:
        """Send a signal, on record."""
        self.tell(f"SIG{signal.Signals(number).name.removeprefix('SIG')} to {whom}", pid)
        processes.send(pid, number)

    def tell(self, what: str, pid: int = 0) -> None:
        """Put an injection on record."""
        with _environment(FAULT_LOG=str(self.checkout.faults)):
            report_fault(what, pid or os.getpid())

    def also(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Another process of the scene, which play waits for."""
        self.others.append(self.checkout.start(command))
        return self.others[-1]

    def sleeper(self) -> int:
        """The pid of a process that has nothing to do with any run."""
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(200)"], env={})
        self.stack.callback(_end, process)
        return process.pid

    def result(self) -> dict[str, Any]:
        """The plan's part of session.json; empty where there is none."""
        return next(iter(self.checkout.session().get("results", [])), {})

    # What came of it.

    def _row(
        self, command: list[str], code: int, started: float, ended: float, left: tuple[str, ...], gone_s: float
    ) -> Row:
        result = self.result()
        outcome = result.get("outcome") or {}
        told = ": ".join(filter(None, (outcome.get("status"), outcome.get("category"))))
        injected = tuple(line for line in self.checkout.injected() if line["what"] != "left behind")
        begin = min((line["t_wall"] for line in injected), default=started)
        verdict = self._settled_at() or ended
        reason = str(outcome.get("reason") or "") if outcome else _last_line(self.checkout.output)
        return Row(
            name=self.fault.name,
            command=_without(shlex.join(["pytest", *command[command.index("suite") :]]), self.checkout.root),
            injected=injected,
            outcome=told or f"exit {code}",
            reason=_without(reason, self.checkout.root),
            rank=outcome.get("rank"),
            attempts=sum(run["attempts"] for run in result.get("runs", [])) or 1,
            exit=code,
            verdict_s=round(max(verdict - begin, 0.0), 2),
            left=left,
            gone_s=round(gone_s, 2),
        )

    def _rebuild(self) -> None:
        """What a user does whose session was killed."""
        command = [sys.executable, "-m", "reports", "rebuild", str(self.checkout.results)]
        subprocess.run(command, cwd=self.checkout.root, capture_output=True, timeout=PATIENCE_S, check=False)

    def _settled_at(self) -> float | None:
        """When the plan's outcome or verdict was first told."""
        times = []
        for path in self.checkout.results.glob("journal-*.jsonl") if self.checkout.results.is_dir() else ():
            for line in path.read_bytes().split(b"\n")[:-1]:
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if entry["record"]["kind"] in ("outcome", "verdict"):
                        times.append(float(entry["t_wall"]))
        return min(times, default=None)

    def _end_all(self) -> None:
        for process in (self.process, *self.others):
            _end(process)
        wait_for_nothing(self.checkout)


@contextlib.contextmanager
def _environment(**variables: str) -> Any:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(10)


def _without(text: str, root: Path) -> str:
    """The text without what only the machine knows on which it was written."""
    for path, name in ((f"{root}/", ""), (str(root), "CHECKOUT"), (sys.executable, "python")):
        text = text.replace(path, name)
    return text


def _last_line(text: str) -> str:
    """What pytest said last, where it said an error."""
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
