"""Healthy and broken runs of the minis, and the targets that the rule of docs/statistics.md gives.

`python -m benchmarks.healthy_seeds [MODEL…] --seeds 20 [--jobs N] [--threads T] [--out FILE]`
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from benchmarks.seed_runs import GRACE_S, ROOT, Mini, Training, named, out_of_reach
from benchmarks.seed_table import BROKEN, Line, faults, summary, told
from suite.drivers.command_line import Parser
from suite.errors import UsageProblem

Key = tuple[str, int, str]
"""Case, seed and kind: what no two runs of a file share."""

MOST_VOID = 2
"""Tries of a job that may be void before that is its outcome."""


@dataclass(kw_only=True)
class Job:
    """One line of the file: a seed trained as it is judged and then to its end, or broken and to its end."""

    mini: Mini
    seed: int
    kind: str
    stages: list[str]
    found: dict[str, Line] = field(default_factory=dict)
    void: list[str] = field(default_factory=list)
    """What earlier tries of a stage ended as, where the host and not the training was to blame."""
    wall_s: float = 0.0

    @property
    def key(self) -> Key:
        """What no two jobs share."""
        return self.mini.name, self.seed, self.kind

    def line(self, threads: int | None) -> Line:
        """What the file keeps of it."""
        judged, whole = self.found.get("judged"), self.found["whole"]
        shown = judged or whole
        values = [value for _, value in whole["curve"]]
        best = (max if self.mini.better == "higher" else min)(values, default=None)
        met = met_at(whole["curve"], self.mini)
        line: Line = {"case": self.mini.name, "seed": self.seed, "kind": self.kind}
        line |= {name: shown[name] for name in ("outcome", "category", "reason")}
        line |= {"metric": self.mini.metric, "better": self.mini.better, "target": self.mini.target}
        line |= {"at_target": met and met[1], "step_at_target": met and met[0]}
        line |= {"end": values[-1] if is_whole(whole) else None, "best": best}
        line["lost"] = "" if is_whole(whole) else f"{whole['outcome']}: {whole['category']}: {whole['reason']}"
        if judged:  # the same seed must tell the same story twice, as far as both go
            line["repeats"] = judged["curve"] == whole["curve"][: len(judged["curve"])]
        line |= {"curve": whole["curve"], "void": self.void, "threads": threads, "wall_s": round(self.wall_s, 1)}
        return line | {"versions": whole["versions"]}


def met_at(curve: Sequence[Sequence[float]], mini: Mini) -> Sequence[float] | None:
    """The first evaluation at which the target is met."""
    sign = 1 if mini.better == "higher" else -1
    return next((point for point in curve if sign * point[1] >= sign * mini.target), None)


def is_whole(found: Mapping[str, object]) -> bool:
    """Whether a run whose target is out of reach was trained to its end: only then is quality what failed."""
    return bool(found["curve"]) and (found["outcome"], found["category"]) == ("failed", "quality")


def is_void(found: Mapping[str, object]) -> bool:
    """Whether the host was too busy to measure on, or lost the run: it says nothing about the training."""
    return found["outcome"] in ("error", "not_started") or found["category"] == "invalid_measurement"


def is_measured(line: Mapping[str, object]) -> bool:
    """Whether nobody need run it again: it has an end, and is not void."""
    return line["end"] is not None and not is_void(line)


def read_lines(path: Path) -> list[Line]:
    """The lines of an earlier run, a torn last one left out. Raises UsageProblem for any other that is bad."""
    rows = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    lines = []
    for number, row in enumerate(rows, start=1):
        try:
            line = dict(json.loads(row))
            lines.append(line | {"key": (str(line["case"]), int(line["seed"]), str(line["kind"]))})
        except (ValueError, TypeError, KeyError) as problem:
            what = f"{path}:{number}: not a line of healthy_seeds; remove it, or name another --out"
            raise UsageProblem(what) from problem
    return lines


def opened(path: Path) -> TextIO:
    """The file, to append to; what a kill tore off its last line is cut away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        whole = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(whole.rfind(b"\n") + 1)
    return path.open("a", encoding="utf-8")


def jobs_of(cases: Sequence[Mini], seeds: Sequence[int], broken: int, done: set[Key]) -> list[Job]:
    """What is still to be run, one seed of every case before the next one."""
    jobs = []
    for place, seed in enumerate(seeds):
        for mini in cases:
            jobs.append(Job(mini=mini, seed=seed, kind="healthy", stages=["judged", "whole"]))
            kinds = faults(mini) if place < broken else ()
            jobs += [Job(mini=mini, seed=seed, kind=kind, stages=["whole"]) for kind in kinds]
    return [job for job in jobs if job.key not in done]


class Bench:
    """Jobs beside each other, each on cores of its own."""

    def __init__(self, out: TextIO, scratch: Path, *, threads: int | None, limit_s: float):
        self._out, self._scratch, self._threads, self._limit_s = out, scratch, threads, limit_s
        self._copy = out_of_reach(scratch / "copy")
        self._running: dict[int, tuple[Job, Training]] = {}
        self._count = 0

    def run(self, jobs: Sequence[Job], cores: Sequence[Sequence[int]]) -> None:
        """Until all are written down."""
        waiting, left = iter(jobs), len(jobs)
        while left:
            for place in range(len(cores)):
                if place not in self._running and (job := next(waiting, None)):
                    self._start(place, job, cores[place])
            time.sleep(0.1)
            left -= sum(self._is_settled(place, cores[place]) for place in list(self._running))

    def stop(self) -> None:
        """End what runs; the lines written stay."""
        deadline = time.monotonic() + GRACE_S
        for _, training in self._running.values():
            training.tell_to_end()
        for _, training in self._running.values():
            training.await_end(deadline)

    def _start(self, place: int, job: Job, cores: Sequence[int]) -> None:
        extra = [*BROKEN.get(job.kind, ())]
        extra += ["--set", f"threads={self._threads}"] if self._threads else []
        root = ROOT if job.stages[0] == "judged" else self._copy
        self._count += 1
        folder = self._scratch / f"run{self._count}"
        self._running[place] = job, Training(job.mini, job.seed, extra, root=root, folder=folder, cores=cores)

    def _is_settled(self, place: int, cores: Sequence[int]) -> bool:
        """Whether the job at that place is written down; its next stage begins where one is left."""
        job, training = self._running[place]
        if not training.ended(self._limit_s):
            return False
        found = training.found()
        job.wall_s += training.lasted_s
        if is_void(found) and len(job.void) < MOST_VOID:
            job.void.append(f"{job.stages[0]}: {found['outcome']}: {found['category']}: {found['reason']}")
        else:
            job.found[job.stages.pop(0)] = found
        shutil.rmtree(training.session.parent, ignore_errors=True)
        del self._running[place]
        if job.stages:
            self._start(place, job, cores)
            return False
        line = job.line(self._threads)
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
        os.fsync(self._out.fileno())
        print(told(line), flush=True)
        return True


def shares(jobs: int) -> list[list[int]]:
    """The cores that we may use, dealt out evenly; jobs beyond their number would disturb each other."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= jobs <= len(cores):
        raise UsageProblem(f"--jobs {jobs}: this process may use {len(cores)} cores, and a job needs one of its own")
    each = len(cores) // jobs
    return [cores[place * each : (place + 1) * each] for place in range(jobs)]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="python -m benchmarks.healthy_seeds", description=(__doc__ or "")[:98])
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="glm, or glm/pytorch; default: every PyTorch case")
    add("--seeds", type=int, default=20, help="healthy runs of each mini, seeds 1 to N")
    add("--broken", type=int, default=2, help="seeds that are also run with each fault; 0: none")
    add("--jobs", type=int, default=1, help="runs beside each other, each on cores of its own")
    add("--threads", type=int, help="threads of a run; default: what the vendor cpu says")
    add(
        "--out", type=Path, default=Path("healthy_seeds.json"), help="one JSON line a run; what it has is not run again"
    )
    add("--limit", type=float, default=1800, help="seconds that one training may take")
    return parser.parse_args(argv)


def train(given: argparse.Namespace, cases: Sequence[Mini]) -> None:
    """Run what the file lacks."""
    done = {line["key"] for line in read_lines(given.out) if is_measured(line)}
    jobs = jobs_of(cases, range(1, given.seeds + 1), given.broken, done)
    places = shares(given.jobs)
    if not jobs:
        return
    scratch = Path(tempfile.mkdtemp(prefix="healthy-seeds-"))
    with opened(given.out) as out:
        bench = Bench(out, scratch, threads=given.threads, limit_s=given.limit)
        try:
            bench.run(jobs, places)
        finally:
            bench.stop()
            shutil.rmtree(scratch, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0, 4 for wrong usage, 130 where it was told to end."""
    given = arguments(argv)
    for signum in (signal.SIGTERM, signal.SIGINT):  # a background shell has us ignore the latter
        signal.signal(signum, signal.default_int_handler)
    try:
        cases = named(given.models)
        train(given, cases)
    except UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print(f"told to end; the lines in {given.out} stay, and the same command goes on from there", file=sys.stderr)
        return 130
    print("\n".join(summary(cases, read_lines(given.out))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
