"""Synthetic plans and run folders: what a training run leaves behind, written without training."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from suite.plan import Check, Deadlines, DeviceSpec, Machine, Plan, Quality
from suite.topology import Topology

FAULTS = {
    "missing_rank": "events of the last rank are absent",
    "no_header": "the last rank's first line is not a header",
    "no_run_stop": "the last rank's stream ends without run_stop",
    "torn_line": "rank 0's stream ends in half a line after run_stop",
    "nonzero_exit": "the last rank left with status 1",
    "aborted": "every rank says aborted, exception",
    "environment": "every rank says aborted, environment",
    "nan_loss": "a loss of the last rank is the string nan",
    "nan_quality": "the last evaluation is the string nan",
    "diverged": "the checksums of the ranks differ",
    "no_checksum": "no rank wrote a checksum",
    "other_windows": "the last rank's windows have another length",
    "hidden_time": "a third of rank 0's time lies in no phase",
    "forged_clock": "the events claim more time than the harness's witness saw",
    "slow_start": "the first three steps take fifty times as long",
    "drift": "the last third of the steps is 20 % slower",
    "wild_steps": "step times never settle",
    "short_batch": "a window claims more samples than global batch x steps",
    "crash": "the harness saw rank 1 die",
    "no_ended": "the harness never wrote how the run ended",
}


def tiny_plan(**over: Any) -> Plan:
    """A converge plan of two CPU ranks with every common check; `over` replaces fields. The plan has no base."""
    topology = over.pop("topology", Topology(nnodes=1, nproc=2))
    world = topology.world_size
    mode = over.get("mode", "converge")
    checks = [
        Check(name="quality", metric="accuracy", op=">=", threshold=0.7, required=True, source="the case"),
        Check(name="time_to_train", metric="time_to_train_s", op="<=", threshold=600, unit="s", required=True),
        Check(name="throughput", metric="throughput_train", op=">=", threshold=None, unit="sample/s", required=False),
        Check(name="ranks_in_sync", metric="ranks_in_sync", op="==", threshold=1, required=True),
        Check(name="ledger", metric="unaccounted_over", op="<=", threshold=0, unit="s", required=True),
    ]  # fmt: skip
    if mode == "throughput":
        checks = checks[2:]
    if world == 1:
        checks = [check for check in checks if check.name != "ranks_in_sync"]
    fields: dict[str, Any] = {
        "id": f"toy-pytorch-cpu-host-mini-{topology}", "model": "toy", "framework": "pytorch", "vendor": "cpu",
        "machine": "host", "topology": topology, "preset": "mini", "mode": mode, "division": "closed",
        "evidence": "driver", "params": {"train_batch_size": 8, "gradient_accumulation_steps": 1, "lr": 0.1},
        "origins": {"lr": "cases/toy/pytorch/case.toml"}, "samples_unit": "image",
        "quality": Quality(metric="accuracy", better="higher", unit="fraction", target=0.7, source="the case"),
        "checks": tuple(checks), "speedup_metric": "throughput_train", "deadlines": Deadlines(total_s=900),
        "seeds": (1,), "device": DeviceSpec(type="cpu", backend="gloo", shared=True),
        "machine_facts": Machine(name="host"), "case_dir": Path("cases/toy/pytorch"), "vendor_dir": Path("vendors/cpu"),
        "case_digest": "c" * 8, "measurement_version": "case:1 driver/pytorch:1", "plan_digest": f"p{topology}",
        "data_digest": "d" * 8,
    }  # fmt: skip
    return Plan(**(fields | over))


def with_base(plan: Plan, threshold: float | None = 1.5, **over: Any) -> Plan:
    """`plan` with a 1x1 throughput base and a speedup check held to `threshold`."""
    single = Topology(nnodes=1, nproc=1)
    base = tiny_plan(topology=single, mode="throughput", id="toy-pytorch-cpu-host-mini-throughput-1x1", **over)
    check = Check(
        name="speedup",
        metric="speedup",
        op=">=",
        threshold=threshold,
        required=threshold is not None,
        source="a vendor",
    )
    return plan.model_copy(update={"base": base, "checks": (*plan.checks, check)})


def write_plan_folder(
    folder: Path, plan: Plan, *, runs: Sequence[dict[str, Any]] = ({},), base_runs: Sequence[dict[str, Any]] = ()
) -> Path:
    """plan.json, the plan's harness.jsonl, one run folder for each of `runs` (arguments of `write_run`), and base/."""
    folder.mkdir(parents=True, exist_ok=True)
    plan.write(folder / "plan.json")
    lines: list[dict[str, Any]] = []
    for n, arguments in enumerate(runs, 1):
        write_run(folder / f"r{n}", plan, n=n, **arguments)
        lines.append({"event": "attempt", "n": n, "attempt": 1, "folder": f"r{n}", "outcome": {"status": "passed"}})
    if plan.base is not None and base_runs:
        write_plan_folder(folder / "base", plan.base, runs=base_runs)
        digest = plan.base.plan_digest
        lines.append({"event": "base", "folder": "base", "reused": False, "plan_digest": digest, "note": ""})
    write_lines(
        folder / "harness.jsonl", [{"t": 1.0 + i, "t_wall": 2000.0 + i, **line} for i, line in enumerate(lines)]
    )
    return folder


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """JSON Lines."""
    path.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines), encoding="utf-8")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_run(
    folder: Path,
    plan: Plan,
    *,
    ranks: int | None = None,
    steps: int = 120,
    window: int = 10,
    step_s: float = 0.1,
    data_s: float = 0.01,
    noise: float = 0.002,
    quality: Sequence[float] = (0.3, 0.6, 0.75),
    faults: Collection[str] = (),
    n: int = 1,
    attempt: int = 1,
    flops_per_sample: float | None = 1e9,
    power_w: float | None = None,
) -> Path:
    """One run folder of `plan`; `faults` are keys of FAULTS, `steps` and the evaluations are multiples of `window`."""
    unknown = set(faults) - FAULTS.keys()
    assert not unknown, f"unknown faults {unknown}"
    world = plan.world_size if ranks is None else ranks
    for name in ("events", "exits", "logs", "checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    span = 0.0
    for rank in range(world):
        shape = _Shape(
            plan, rank, world, steps, window, step_s, data_s, noise, tuple(quality), frozenset(faults), flops_per_sample
        )
        lines = shape.lines()
        lines[0]["run"] = f"run-{n}.{attempt}"
        if rank == 0:
            span = lines[-1]["t"] - lines[0]["t"]
        _write_rank(folder, rank, lines, shape)
    _write_harness(folder, plan, world, span, faults, n, attempt)
    _write_monitor(folder, span, power_w, world)
    return folder


class _Shape:
    """The events of one rank."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        world: int,
        steps: int,
        window: int,
        step_s: float,
        data_s: float,
        noise: float,
        quality: tuple[float, ...],
        faults: frozenset[str],
        flops_per_sample: float | None,
    ) -> None:
        self.plan, self.rank, self.world, self.steps, self.window = plan, rank, world, steps, window
        self.step_s, self.data_s, self.noise, self.faults = step_s, data_s, noise, faults
        self.quality = quality if plan.mode == "converge" else ()
        self.flops_per_sample = flops_per_sample
        self.batch = int(plan.params.get("train_batch_size", 8))  # type: ignore[arg-type]
        self.random = random.Random(f"{plan.id} {rank}")
        # Clocks of different ranks have nothing to do with each other.
        self.t = self.t0 = 1000.0 + 500.0 * rank
        self.out: list[dict[str, Any]] = []

    @property
    def last(self) -> bool:
        return self.rank == self.world - 1

    def say(self, event: str, after: float = 0.0, **keys: Any) -> None:
        self.t = round(self.t + after, 6)
        self.out.append({"event": event, "t": self.t, **keys})

    def lines(self) -> list[dict[str, Any]]:
        self._open()
        each = self.steps // max(len(self.quality), 1)
        first = 1
        while first <= self.steps:
            self._window(first)
            first += self.window
            done = first - 1
            if self.quality and done % each == 0:
                self._evaluate(done, done // each - 1)
        self._close()
        return self.out

    def _open(self) -> None:
        node, local = divmod(self.rank, self.plan.topology.nproc)
        header = {
            "schema": 1, "run": "run-1", "rank": self.rank, "world_size": self.world, "local_rank": local,
            "node_rank": node, "host": "host", "pid": 100 + self.rank, "t_wall": 2000.0, "t_mono": self.t,
            "devices": 1,
            "device": {"type": self.plan.device.type, "name": "CPU", "identity": f"host/{self.rank}",
                       "index": self.rank},
            "framework": {"name": "torch", "version": "2.13.0"}, "fallbacks": [], "slots": {}, "timer": "sync_clock",
            "precision": {"compute": "fp32", "autocast": None, "tf32": False, "matmul": "highest"},
            "transport": "unknown", "versions": {"python": "3.11"},
        }  # fmt: skip
        self.say("header", **header)
        if self.rank == 0:
            self.say("init_start", 0.01)
            self.say("init_stop", 0.5, parameters=1000, trainable=1000)
            flops = {"flops_per_sample": self.flops_per_sample, "flops_formula": "palm"}
            self.say(
                "run_start", resumed_from_step=0, segment=1, global_batch=self.batch * self.world, active_s=0, **flops
            )
            self.say("epoch_start", epoch=1)
        else:
            self.t += 0.51

    def _step_times(self, first: int) -> list[float]:
        times = []
        for step in range(first, min(first + self.window, self.steps + 1)):
            seconds = self.step_s * (1 + self.noise * self.random.uniform(-1, 1))
            if "slow_start" in self.faults and step <= 3:
                seconds *= 50
            if "drift" in self.faults and step > self.steps * 2 / 3:
                seconds *= 1.2
            if "wild_steps" in self.faults:
                seconds *= 1.35 ** (step / 10)
            times.append(round(seconds, 6))
        return times

    def _window(self, first: int) -> None:
        times = self._step_times(first)
        if "other_windows" in self.faults and self.last and first > self.window:
            times = times[:-1]
        if "hidden_time" in self.faults:
            self.t += sum(times) / 2
        samples = self.batch * len(times)
        if "short_batch" in self.faults and first == 1:
            samples *= 2
        losses: list[Any] = [round(2.0 / (1 + 0.01 * (first + i)), 4) for i in range(len(times))]
        if "nan_loss" in self.faults and self.last and first > self.window:
            losses[-1] = "nan"
        total = round(sum(times), 6)
        self.say(
            "steps", total, first=first, count=len(times), step_s=times, data_s=[min(self.data_s, s) for s in times],
            samples=samples, tokens=samples * 16, loss=losses, lr=0.1, skipped=0, window_s=total,
        )  # fmt: skip

    def _evaluate(self, step: int, index: int) -> None:
        if self.rank:
            self.t += 0.31
            return
        value: float | str = self.quality[index]
        met = self.quality[index] >= self.plan.quality.target
        if "nan_quality" in self.faults and index == len(self.quality) - 1:
            value, met = "nan", False
        self.say("eval_start", step=step)
        samples = self.batch * self.world * step
        self.say("eval_result", 0.3, step=step, samples=samples, metrics={self.plan.quality.metric: value}, met=met)
        self.say("eval_stop", 0.001, step=step)

    def _close(self) -> None:
        if self.rank == 0:
            self.say("epoch_stop", epoch=1)
            self.say("checkpoint_start", step=self.steps)
            self.say("checkpoint_stop", 0.05, step=self.steps, path="checkpoints/latest.pt", bytes=100)
            self.say("memory", peak_bytes=1 << 30, reserved_bytes=None)
        self.say("heartbeat", step=self.steps, phase="checksum")
        if "no_checksum" not in self.faults:
            diverged = "diverged" in self.faults
            digest = f"digest-{self.rank}" if diverged else "digest"
            group = {"name": "all", "holders": list(range(self.world)), "count": 1000, "digest": digest}
            self.say("checksum", 0.01, step=self.steps, groups=[group], equal=not diverged, spread=0.0, uncovered=0)
        met = any(value >= self.plan.quality.target for value in self.quality)
        ok = {"converge": "target_reached" if met and "nan_quality" not in self.faults else "max_samples"}
        status, reason, detail = "success", ok.get(self.plan.mode, "max_steps"), ""
        if "aborted" in self.faults:
            status, reason, detail = "aborted", "exception", "ValueError: broken"
        if "environment" in self.faults:
            status, reason, detail = "aborted", "environment", "precision is fp32, expected bf16"
        samples = self.batch * self.world * self.steps * (2 if "short_batch" in self.faults else 1)
        wall = {"t_wall": 2000.0 + self.t - self.t0, "t_mono": self.t}
        if "short_batch" in self.faults:
            samples = self.batch * self.world * (self.steps + min(self.window, self.steps))
        self.say("run_stop", status=status, reason=reason, detail=detail, step=self.steps, samples=samples, **wall)


def _write_rank(folder: Path, rank: int, lines: list[dict[str, Any]], shape: _Shape) -> None:
    faults = shape.faults
    path = folder / "events" / f"rank{rank}.jsonl"
    if shape.last and "no_header" in faults:
        lines = lines[1:]
    if shape.last and "no_run_stop" in faults:
        lines = lines[:-1]
    if not (shape.last and "missing_rank" in faults):
        write_lines(path, lines)
    if rank == 0 and "torn_line" in faults:
        with path.open("a") as file:
            file.write('{"event":"heart')
    failed = shape.last and "nonzero_exit" in faults
    record = {
        "rank": rank, "pid": 100 + rank, "started_wall": 1999.0, "ended_wall": 2001.0 + shape.t - shape.t0,
        "returncode": 1 if failed else 0, "signal": None,
    }  # fmt: skip
    (folder / "exits" / f"rank{rank}.json").write_text(json.dumps(record))
    (folder / "logs" / f"rank{rank}.log").write_text("".join(f"line {i} of rank {rank}\n" for i in range(40)))


def _write_harness(
    folder: Path, plan: Plan, world: int, span: float, faults: Collection[str], n: int, attempt: int
) -> None:
    seed = plan.seeds[min(n, len(plan.seeds)) - 1]
    quality = {"metric": plan.quality.metric, "better": plan.quality.better, "target": plan.quality.target}
    run = {
        "schema": 1,
        "run": f"run-{n}.{attempt}",
        "id": plan.id,
        "n": n,
        "attempt": attempt,
        "mode": plan.mode,
        "seed": seed,
    }
    (folder / "run.json").write_text(json.dumps(run | {"quality": quality}))
    (folder / "environment.json").write_text(json.dumps({"host": "host", "python": "3.11", "driver_version": "none"}))
    (folder / "command.txt").write_text("python -m torch.distributed.run train.py\n")
    ended: dict[str, Any] = {"event": "ended", "by": "itself", "status": "passed", "category": "", "reason": ""}
    ended |= {"rank": None, "log_tail": []}
    if "crash" in faults:
        tail = ["Traceback", "boom \x1b[31m"]
        ended |= {
            "by": "harness",
            "status": "error",
            "category": "crash",
            "reason": "rank 1 died",
            "rank": 1,
            "log_tail": tail,
        }
    wall = span * (0.6 if "forged_clock" in faults else 1.0) + 0.1
    lines: list[dict[str, Any]] = [
        {"event": "phase", "name": "prepare", "seconds": 0.2},
        {"event": "started", "node": 0, "host": "host", "pid": 99},
        {"event": "phase", "name": "launch", "seconds": 2.0},
        *({"event": "header_seen", "rank": rank, "since_launch_s": 2.0} for rank in range(world)),
        {"event": "witness", "wall_s": wall + 0.4, "span_s": [wall - 0.3, wall]},
        {"event": "node_exit", "node": 0, "returncode": 0, "killed": [], "leftover": []},
        {"event": "phase", "name": "teardown", "seconds": 0.4},
    ]
    if "no_ended" not in faults:
        lines.append(ended)
    write_lines(
        folder / "harness.jsonl", [{"t": 10.0 + i, "t_wall": 1990.0 + i, **line} for i, line in enumerate(lines)]
    )


def _write_monitor(folder: Path, span: float, power_w: float | None, devices: int) -> None:
    lines = []
    for second in range(-2, int(span) + 3):
        # Outside the run the devices idle: a reader that does not cut to the train window gets another mean.
        inside = 1 <= second <= span - 1
        device = {
            "utilisation": 90.0 if inside else 0.0, "memory_bytes": 2 << 30, "power_w": power_w if inside else 0.0,
            "temperature_c": 50.0, "sm_clock_mhz": 1500.0, "energy_j": None,
        }  # fmt: skip
        found = [{"id": f"gpu{i}", **device} for i in range(devices)] if power_w is not None else []
        host = {"cpu_percent": 80.0, "memory_bytes": 3 << 30}
        lines.append({"t_wall": 2000.0 + second, "t_mono": 5.0 + second, "devices": found, "host": host})
    write_lines(folder / "monitor.jsonl", lines)
