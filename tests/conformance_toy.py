"""Chips that are not there, and the run folder of a conformance run that nobody made."""

from __future__ import annotations

import json
import threading
import time
import types
from pathlib import Path
from typing import Any

from suite.catalog import load_catalog
from suite.conformance_plan import conformance_plans
from suite.plan import Plan
from suite.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
SPEC = {"type": "xpu", "plugin": "", "backend": "cpu:gloo,xpu:own", "identity": "uuid"}
HOST = {"type": "cpu", "plugin": "", "backend": "gloo", "identity": "host", "shared": True}


class Chip:
    """An asynchronous chip with events and memory, on a clock of its own."""

    def __init__(self, *, waits: bool = True, speed: float = 1.0, free: int = 1 << 33) -> None:
        self.done = time.perf_counter()
        self.waits = waits
        self.speed = speed
        """Of its events' clock."""
        self.free = free

    def device_count(self) -> int:
        return 1

    def is_available(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self.waits:
            self.wait()

    def wait(self) -> None:
        time.sleep(max(0.0, self.done - time.perf_counter()))

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return self.free, 1 << 33

    def get_device_properties(self, index: int) -> Any:
        return types.SimpleNamespace(name="Acme A1", total_memory=1 << 33, uuid="ACME-0")

    def Event(self, enable_timing: bool) -> Any:  # torch's own spelling
        return Event(self)


class Event:
    """Happens when the chip comes to it."""

    def __init__(self, chip: Chip) -> None:
        self.chip, self.at = chip, 0.0

    def record(self) -> None:
        self.at = max(self.chip.done, time.perf_counter())

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1000 * self.chip.speed


class Work:
    """A long kernel on a Chip."""

    def __init__(self, chip: Chip, seconds: float = 0.12) -> None:
        self.chip, self.seconds = chip, seconds

    def start(self) -> None:
        self.chip.done = max(self.chip.done, time.perf_counter()) + self.seconds

    def finish(self) -> float:
        self.chip.wait()
        return 1.0


class Holder:
    """A process that takes memory of a Chip; `leaks` of it are not given back."""

    mib = 256

    def __init__(self, chip: Chip, leaks: int = 0) -> None:
        self.chip, self.leaks = chip, leaks
        self.alive = False

    def start(self) -> None:
        self.chip.free -= self.mib << 20
        self.alive = True

    def end(self) -> None:
        self.chip.free += (self.mib - self.leaks) << 20
        self.alive = False


class Ranks:
    """Threads for ranks: exchanges that are right, by hand."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.brought: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=30)

    def run(self, act: Any) -> list[Any]:
        """`act(rank)` in a thread for each rank; what they return."""
        found: list[Any] = [None] * self.size
        threads = [
            threading.Thread(target=lambda rank=rank: found.__setitem__(rank, act(rank))) for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        return found


class ThreadExchange:
    """The collectives of one rank among `ranks`."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank = ranks, rank

    def _all(self, mine: Any) -> list[Any]:
        self.ranks.brought[self.rank] = mine
        self.ranks.barrier.wait()
        every = list(self.ranks.brought)
        self.ranks.barrier.wait()
        return every

    def all_reduce(self, mine: Any, size: int) -> Any:
        return sum(self._all(mine)[1:], self._all(mine)[0])

    def all_gather(self, mine: Any, size: int) -> Any:
        import torch

        return torch.cat(self._all(mine))

    def reduce_scatter(self, mine: Any, size: int) -> Any:
        return self.all_reduce(mine, size).chunk(size)[self.rank]

    def broadcast(self, mine: Any, size: int) -> Any:
        return self._all(mine)[size - 1]

    def all_to_all(self, mine: Any, size: int) -> Any:
        import torch

        return torch.cat([tensor.chunk(size)[self.rank] for tensor in self._all(mine)])


def plan_of(topology: str = "1x2", *, shared: bool = True) -> Plan:
    """A plan of the shipped cpu; not `shared`: as of a chip that a run has for itself."""
    catalog = load_catalog(ROOT / "suite")
    (plan,) = conformance_plans(catalog, catalog.vendor("cpu"), "host", [Topology.parse(topology)])
    if shared:
        return plan
    device = plan.device.model_copy(update={"type": "xpu", "shared": False, "identity": "uuid"})
    checks = tuple(check.model_copy(update={"required": True}) for check in plan.checks)
    return plan.model_copy(update={"device": device, "checks": checks})


GOOD: dict[str, float] = {"fast_path": 3.0}
"""Values of checks that hold; of any other, 0."""


def write_run(folder: Path, plan: Plan, *, over: dict[tuple[int, str], dict[str, Any] | None] | None = None) -> Path:
    """A plan's folder with one run in which all is well, but for `over`: {(rank, check): keys; None: no finding}."""
    run = folder / "r1"
    for name in ("events", "exits", "logs"):
        (run / name).mkdir(parents=True, exist_ok=True)
    plan.write(folder / "plan.json")
    spec = {"n": 1, "seed": plan.seeds[0], "attempt": 1}
    (run / "run.json").write_text(json.dumps(spec))
    (run / "environment.json").write_text("{}")
    ended = {"event": "ended", "t": 1.0, "t_wall": 1.0, "by": "itself", "status": "passed"}
    (run / "harness.jsonl").write_text(json.dumps(ended) + "\n")
    for rank in range(plan.world_size):
        lines = [_header(rank, plan.world_size), *_findings(rank, plan, over or {})]
        if rank == 0:
            lines += [{"event": "capability", "t": 60.0, "name": "bf16", "has": True, "remark": ""}]
            lines += [{"event": "capability", "t": 60.0, "name": "compile", "has": False, "remark": "no compiler"}]
        lines.append({"event": "run_stop", "t": 61.0, "status": "success", "reason": "examined", "detail": ""})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run / "events" / f"rank{rank}.jsonl").write_text(text)
        exit_record = {"rank": rank, "pid": 1, "returncode": 0, "signal": None, "ended_wall": 1.0}
        (run / "exits" / f"rank{rank}.json").write_text(json.dumps(exit_record))
    return run


def _header(rank: int, size: int) -> dict[str, Any]:
    return {"event": "header", "t": 0.0, "schema": 1, "rank": rank, "world_size": size, "t_wall": 1000.0, "t_mono": 0.0}


def _findings(rank: int, plan: Plan, over: dict[tuple[int, str], dict[str, Any] | None]) -> list[dict[str, Any]]:
    found = []
    for check in plan.checks:
        keys = over.get((rank, check.name), {"value": GOOD.get(check.name, 0.0), "remark": ""})
        if keys is not None and not check.name.startswith("monitor_"):
            found.append({"event": "finding", "t": 1.0, "check": check.name, **keys})
    spans = over.get((rank, "monitor"), {"rest": [10.0, 20.0], "load": [20.0, 30.0]})
    if spans is not None:
        found.append({"event": "finding", "t": 31.0, "check": "monitor", "value": None, **spans})
    return found


def write_monitor(
    run: Path,
    rest: dict[str, float],
    load: dict[str, float],
    devices: int = 2,
    *,
    name: str = "monitor.jsonl",
    ahead_s: float = 0.0,
) -> None:
    """A sample each second: what every device shows at rest, and under load, by a clock that is so far ahead."""
    lines = []
    for second in range(10, 31):
        values = rest if second < 20 else load
        every = [{"id": f"D{index}", **values} for index in range(devices)]
        lines.append(json.dumps({"t_wall": 1000.5 + second + ahead_s, "devices": every, "host": {}}) + "\n")
    (run / name).write_text("".join(lines))
