"""Gates over played trainings: event streams whose step times are drawn, measured and judged as any folder is."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scaling_hosts import Host
from suite.plan import Plan
from suite.result import CheckResult
from suite.verdict import judge_folder

STEPS, WINDOW = 60, 10
RATE = 300.0
"""True samples a second of one device of the base."""
SWAY = 0.03
"""How far a step strays from its run's own speed: a run's noise is not its steps'."""


def played_gate(folder: Path, plan: Plan, truth: float, host: Host, chance: random.Random) -> CheckResult:
    """One gate whose runs are folders of events."""
    assert plan.base is not None
    deviations = host.deviations(2 * plan.repeat + 1, chance)
    base = plan.base.model_copy(update={"repeat": plan.repeat + 1})
    _play(folder / "base", base, RATE, deviations[::2], chance)
    _play(folder, plan, RATE * truth, deviations[1::2], chance)
    told = {"event": "base", "folder": "base", "reused": False, "plan_digest": base.plan_digest, "note": ""}
    _append(folder / "harness.jsonl", [told])
    result = judge_folder(folder)
    return next(check for check in result.checks if check.name == "speedup")


def _batch(plan: Plan) -> int:
    """Samples of a device and step."""
    return int(str(plan.params["train_batch_size"])) * int(str(plan.params.get("gradient_accumulation_steps", 1)))


def _play(folder: Path, plan: Plan, rate: float, deviations: list[float], chance: random.Random) -> None:
    """plan.json and a run folder for each deviation from `rate`, samples a second and device."""
    folder.mkdir(parents=True, exist_ok=True)
    plan.write(folder / "plan.json")
    attempts = []
    for n, deviation in enumerate(deviations, start=1):
        attempts.append({"event": "attempt", "n": n, "attempt": 1, "folder": f"r{n}", "outcome": {"status": "passed"}})
        run = folder / f"r{n}"
        for name in ("events", "exits", "logs", "checkpoints"):
            (run / name).mkdir(parents=True)
        # All ranks wait for each other at every step: they share its time.
        seconds = _batch(plan) / rate / math.exp(deviation)
        times = [seconds * math.exp(chance.gauss(0, SWAY)) for _ in range(STEPS)]
        losses = [round(chance.uniform(1, 2), 6) for _ in range(STEPS)]
        for rank in range(plan.world_size):
            _append(run / f"events/rank{rank}.jsonl", list(_rank(plan, rank, n, times, losses)))
            exit_of = {"rank": rank, "pid": 100 + rank, "started_wall": 1.0, "ended_wall": 2.0, "returncode": 0}
            (run / f"exits/rank{rank}.json").write_text(json.dumps(exit_of | {"signal": None}))
        _around(run, plan, n, sum(times) + 2)
    _append(folder / "harness.jsonl", attempts)


def _rank(plan: Plan, rank: int, n: int, times: list[float], losses: list[float]) -> Iterator[dict[str, Any]]:
    """The events of one rank, by a clock of its own."""
    t = start = 1000.0 + 500.0 * rank
    batch = _batch(plan)
    node, local = divmod(rank, plan.topology.nproc)
    place = {"rank": rank, "world_size": plan.world_size, "local_rank": local, "node_rank": node, "devices": 1}
    device = {"type": plan.device.type, "name": "stand-in", "identity": f"stand-in/{rank}", "index": rank}
    precision = {"compute": "fp32", "autocast": None, "tf32": False, "matmul": "highest"}
    header = {
        "schema": 1,
        "run": f"played.r{n}",
        "host": "host",
        "pid": 100 + rank,
        "t_wall": 2000.0,
        "t_mono": t,
        **place,
    }
    told = {"framework": {"name": "torch", "version": "2"}, "fallbacks": [], "slots": {}, "timer": "sync_clock"}
    yield {"event": "header", "t": t, **header, "device": device, "precision": precision, **told}
    if rank == 0:
        yield {"event": "init_start", "t": t}
        yield {"event": "init_stop", "t": t + 0.5, "parameters": 8, "trainable": 8}
        begun = {"resumed_from_step": 0, "segment": 1, "global_batch": batch * plan.world_size, "active_s": 0}
        yield {"event": "run_start", "t": t + 0.5, **begun}
    t += 0.5
    for first in range(0, STEPS, WINDOW):
        some = [round(value, 6) for value in times[first : first + WINDOW]]
        t += sum(some)
        work = {"samples": batch * WINDOW, "tokens": batch * WINDOW, "skipped": 0, "lr": 0.1}
        seen = {"step_s": some, "data_s": [0.0] * WINDOW, "window_s": round(sum(some), 6)}
        loss = losses[first : first + WINDOW]
        yield {"event": "steps", "t": t, "first": first + 1, "count": WINDOW, **seen, **work, "loss": loss}
    group = {"name": "all", "holders": list(range(plan.world_size)), "count": 8, "digest": "digest"}
    yield {"event": "checksum", "t": t, "step": STEPS, "groups": [group], "equal": True, "spread": 0.0, "uncovered": 0}
    done = {"status": "success", "reason": "max_steps", "detail": "", "step": STEPS}
    samples = batch * plan.world_size * STEPS
    yield {"event": "run_stop", "t": t, **done, "samples": samples, "t_wall": 2000.0 + t - start, "t_mono": t}


def _around(run: Path, plan: Plan, n: int, wall_s: float) -> None:
    """What the harness leaves beside the events of a run that ended well."""
    quality = {"metric": plan.quality.metric, "better": plan.quality.better, "target": plan.quality.target}
    told = {"schema": 1, "run": f"played.r{n}", "id": plan.id, "n": n, "attempt": 1, "mode": plan.mode, "seed": n}
    (run / "run.json").write_text(json.dumps(told | {"quality": quality}))
    (run / "environment.json").write_text("{}")
    ended = {"event": "ended", "by": "itself", "status": "passed", "category": "", "reason": "", "rank": None}
    seen = [{"event": "header_seen", "rank": rank, "since_launch_s": 1.0} for rank in range(plan.world_size)]
    witness = {"event": "witness", "wall_s": wall_s}
    _append(run / "harness.jsonl", [*seen, witness, ended | {"log_tail": []}])


def _append(path: Path, lines: list[dict[str, Any]]) -> None:
    """Each with a time, unless it has one."""
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps({"t": 1.0, "t_wall": 2000.0, **line}) + "\n")
