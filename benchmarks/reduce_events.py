"""Time and memory of measuring 1,024 ranks x 10,000 steps: `python benchmarks/reduce_events.py [RANKS [STEPS]]`.

The limits are 10 s and 500 MB. The events are synthetic; writing them is not part of either.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from suite.drivers.command_line import Parser  # noqa: E402
from suite.measure import measure  # noqa: E402
from suite.plan import Check, Deadlines, DeviceSpec, Machine, Plan, Quality  # noqa: E402
from suite.topology import Topology  # noqa: E402

WINDOW = 100
STEP_S = 0.125
LOSSES = 10
BATCH = 8
LIMIT_S, LIMIT_MB = 10.0, 500.0
DEVICES_A_NODE = 8


def make_plan(ranks: int) -> Plan:
    """A throughput plan of so many ranks."""
    topology = Topology(nnodes=max(ranks // DEVICES_A_NODE, 1), nproc=min(ranks, DEVICES_A_NODE))
    check = Check(name="throughput", metric="throughput_train", op=">=", threshold=1.0, unit="image/s", required=True)
    quality = Quality(metric="accuracy", better="higher", target=0.7, source="nobody")
    return Plan(
        id=f"synthetic-{topology}", model="synthetic", framework="none", vendor="cpu", machine="host",
        topology=topology, preset="full", mode="throughput", division="closed", evidence="driver",
        params={"train_batch_size": BATCH, "gradient_accumulation_steps": 1}, origins={}, samples_unit="image",
        quality=quality, checks=(check,), speedup_metric="throughput_train", deadlines=Deadlines(total_s=1e5),
        seeds=(1,), device=DeviceSpec(type="cpu", backend="gloo"), machine_facts=Machine(name="host"),
        case_dir=Path(), vendor_dir=Path(), case_digest="", measurement_version="", plan_digest="", data_digest="",
    )  # fmt: skip


def lines(plan: Plan, rank: int, steps: int) -> Iterator[dict[str, object]]:
    """The events of one rank."""
    world, zero = plan.world_size, 1000.0 + rank
    node, local = divmod(rank, plan.topology.nproc)
    t = zero
    yield {
        "event": "header", "schema": 1, "t": t, "t_mono": t, "t_wall": 1e9, "run": "synthetic", "rank": rank,
        "world_size": world, "local_rank": local, "node_rank": node, "host": f"node{node}", "pid": 1,
        "device": {"name": "toy", "identity": str(rank)},
    }  # fmt: skip
    if rank == 0:
        yield {"event": "init_stop", "t": t}
        yield {"event": "run_start", "t": t, "global_batch": BATCH * world}
    for first in range(1, steps + 1, WINDOW):
        times = [STEP_S + ((first + place) * 7919 + rank * 104729) % 2000 / 1e6 for place in range(WINDOW)]
        t = round(t + sum(times), 6)
        waits = [round(seconds / 11, 6) for seconds in times]
        yield {
            "event": "steps", "t": t, "first": first, "count": WINDOW, "step_s": [round(x, 6) for x in times],
            "data_s": waits, "samples": BATCH * WINDOW, "tokens": 0, "loss": [2.0 + 1 / first] * LOSSES, "lr": 0.001,
            "window_s": round(sum(times), 6),
        }  # fmt: skip
    group = {"name": "all", "holders": list(range(world)), "count": 7, "digest": "d"}
    yield {"event": "checksum", "t": t, "step": steps, "groups": [group], "equal": True, "spread": 0.0}
    yield {"event": "run_stop", "t": t, "t_mono": t, "t_wall": 1e9 + t - zero, "status": "success",
           "reason": "max_steps", "step": steps, "samples": BATCH * steps * world}  # fmt: skip


def write_run(folder: Path, plan: Plan, steps: int) -> int:
    """A run folder; the bytes of its events."""
    for name in ("events", "exits", "logs"):
        (folder / name).mkdir(parents=True)
    size = 0
    for rank in range(plan.world_size):
        text = "".join(json.dumps(line) + "\n" for line in lines(plan, rank, steps))
        size += (folder / "events" / f"rank{rank}.jsonl").write_text(text)
        told = {"rank": rank, "pid": 1, "returncode": 0, "signal": None, "ended_wall": 1e9}
        (folder / "exits" / f"rank{rank}.json").write_text(json.dumps(told))
    ended = {"event": "ended", "t": 1.0, "t_wall": 1e9, "by": "itself", "status": "passed", "category": ""}
    (folder / "harness.jsonl").write_text(json.dumps(ended) + "\n")
    return size


def main() -> int:
    """Print time and memory against their limits; 1 if one is exceeded, or the run could not be measured."""
    parser = Parser(description=__doc__)
    parser.add_argument("ranks", type=int, nargs="?", default=1024)
    parser.add_argument("steps", type=int, nargs="?", default=10_000)
    given = parser.parse_args()
    ranks, steps = given.ranks, given.steps
    plan = make_plan(ranks)
    with tempfile.TemporaryDirectory() as folder:
        size = write_run(Path(folder) / "r1", plan, steps)
        begin, before = time.perf_counter(), time.process_time()
        measured = measure(plan, Path(folder) / "r1")
        seconds, cpu = time.perf_counter() - begin, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if measured.problem is not None:
        print(f"not measured: {measured.problem.reason}")
        return 1
    rate = measured.metrics["throughput_train"]
    print(f"{ranks} ranks x {steps} steps, {size / 1e6:.0f} MB of events, {rate:,.0f} images/s")
    print(f"  {seconds:.1f} s ({cpu:.1f} s of CPU), limit {LIMIT_S:g} s")
    print(f"  {peak:.0f} MB at most, limit {LIMIT_MB:g} MB")
    return 0 if seconds <= LIMIT_S and peak <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
