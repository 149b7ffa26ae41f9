"""A launcher and a training in plain Python, with torchrun's habits, for tests that should not wait for a framework."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fixtures.hardware import Found, Probe
from fixtures.node import processes
from fixtures.site import Lease, Site
from fixtures.training import Trainer
from suite.catalog import Catalog, load_catalog
from suite.outcome import Outcome
from suite.plan import Plan
from suite.session import Session
from suite.vendor_spec import Launch
from tests.run_folders import tiny_plan

ROOT = Path(__file__).resolve().parent.parent

LAUNCHER = """
import os, signal, subprocess, sys, time
rank_py, script, nnodes, nproc, node = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
children = {}
for local in range(nproc):
    rank = node * nproc + local
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(nnodes * nproc),
               LOCAL_WORLD_SIZE=str(nproc), GROUP_RANK=str(node))
    children[rank] = subprocess.Popen([sys.executable, rank_py, script], env=env, start_new_session=True)
def end(*_):
    for child in children.values():
        if child.poll() is None: child.terminate()
    raise SystemExit(1)
signal.signal(signal.SIGTERM, end)
while children:
    for rank, child in list(children.items()):
        code = child.poll()
        if code is None: continue
        if code:
            print(f"rank      : {rank} (local_rank: {rank % nproc})", flush=True)
            print(f"exitcode  : {code} (pid: {child.pid})", flush=True)
            end()
        del children[rank]
    time.sleep(0.02)
"""

TRAIN = """
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
run = json.load(open(os.environ["TRAINMARK_RUN"]))
rank = int(os.environ["RANK"])
file = open(os.path.join(run["run_dir"], "events", f"rank{rank}.jsonl"), "a")
def say(event, **keys):
    file.write(json.dumps({"event": event, "t": time.monotonic(), **keys}) + "\\n"); file.flush()
print("rank", rank, "of", os.environ["WORLD_SIZE"], flush=True)
say("header", schema=1, run=run["run"], rank=rank, world_size=int(os.environ["WORLD_SIZE"]), pid=os.getpid(),
    t_wall=time.time(), t_mono=time.monotonic())
def stop(status="success", reason="max_steps", detail=None):
    say("run_stop", status=status, reason=reason, detail=detail, t_wall=time.time(), t_mono=time.monotonic())
def steps(first=1):
    say("steps", first=first, count=1, step_s=[0.01], data_s=[0.0], samples=8, loss=[1.0], window_s=0.01)
if rank == 0: say("run_start")
"""

GOOD = TRAIN + "steps(1); time.sleep(0.1); steps(2); stop()\n"


def toy_plan(folder: Path, train: str = GOOD, *, topology: str = "1x2", **over: Any) -> Plan:
    """A plan of vendor cpu whose train.py is the text `train`."""
    from suite.topology import Topology

    case = folder / "suite" / "cases" / "toy" / "pytorch"
    case.mkdir(parents=True, exist_ok=True)
    (case / "train.py").write_text(train, encoding="utf-8")
    shape = Topology.parse(topology)
    fields = {"id": f"toy-pytorch-cpu-host-mini-{topology}", "case_dir": case, "vendor_dir": ROOT / "suite/vendors/cpu"}
    return tiny_plan(topology=shape, **(fields | over))


def toy_command(plan: Plan, launch: Launch, node: int, address: str, port: int, run_dir: Path) -> tuple[str, ...]:
    """The argv of LAUNCHER."""
    rank_py = ROOT / "suite/drivers/rank.py"
    shape = (str(plan.topology.nnodes), str(plan.topology.nproc), str(node))
    return (sys.executable, "-c", LAUNCHER, str(rank_py), str(plan.case_dir / "train.py"), *shape)


class Watcher:
    """A Progress that remembers, and may act on an event."""

    def __init__(self, act: Any = None) -> None:
        self.notes: list[str] = []
        self.started: list[str] = []
        self.ended: list[Outcome] = []
        self.events: list[tuple[int, Mapping[str, object]]] = []
        self._act = act

    def start(self, plan: Plan, label: str) -> None:
        self.started.append(label)

    def event(self, rank: int, event: Mapping[str, object]) -> None:
        self.events.append((rank, event))
        if self._act:
            self._act(rank, event)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self, outcome: Outcome) -> None:
        self.ended.append(outcome)


def cores(count: int = 2) -> Probe:
    """That many CPU devices, whatever this host has."""
    devices = tuple(Found(key=f"cpu{index}", name="Toy CPU", index=index) for index in range(count))
    return Probe(devices=devices, device_name="Toy CPU")


def trainer(
    folder: Path, progress: Watcher | None = None, records: list[dict[str, Any]] | None = None, **over: Any
) -> Trainer:
    """A Trainer of the shipped catalog in a session below `folder`, with the toy launcher."""
    session = folder / "session"
    session.mkdir(exist_ok=True)
    told: list[dict[str, Any]] = [] if records is None else records
    parts: dict[str, Any] = {
        "session": Session(
            id=f"toy-{os.getpid()}", folder=session, started="2026-01-01T00:00:00Z", vendor="cpu", machine="host"
        ),
        "site": Site(lease=Lease(dir=str(folder / "leases"))),
        "catalog": catalog(),
        "probe": cores(),
        "progress": progress or Watcher(),
        "announce": told.append,
        "baselines": (),
        "command": toy_command,
    }
    return Trainer(**(parts | over))


def catalog() -> Catalog:
    """The shipped one."""
    return load_catalog(ROOT / "suite")


def tagged_with(word: str) -> list[int]:
    """Living processes whose run id holds `word`."""
    return [
        process.pid
        for process in processes.snapshot().values()
        if process.state not in "ZX" and word in processes.environment(process.pid).get(processes.TAG, "")
    ]


def until(check: Any, limit_s: float = 10.0) -> Any:
    """The first true value of `check()`; fails when it stays false."""
    due = time.monotonic() + limit_s
    while time.monotonic() < due:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"still not so after {limit_s:g} s")
