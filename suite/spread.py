"""How much runs of a plan are known to differ: the noise in baselines and earlier results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from statistics import fmean, stdev

from suite.baseline_file import Baseline, baseline_files, read_baseline
from suite.errors import UsageProblem
from suite.events import is_plain_file
from suite.figures import Figures, figures_of
from suite.plan import Plan
from suite.record import Record
from suite.result import Result

LEAST_RUNS = 3
"""The spread of two runs says next to nothing."""

MOST_RESULTS = 200
"""Earlier results of one plan that are looked at, the newest ones."""


class Spread(Record):
    """The spread between runs of one plan, as it was measured."""

    variation: float
    """Standard deviation over the mean."""
    runs: int
    source: str
    """Where the runs are, for a person."""


def known_spread(plan: Plan, places: Sequence[Path]) -> Spread | None:
    """Of the plan's main metric, from `places`: baselines, results, and folders of either. None: nobody knows.

    Results of the same plan_digest are taken together, whenever they were made: two sides are measured at two times.
    Only where there are none, a baseline of the same task on the same machine speaks for it.
    """
    name = "time_to_train_s" if plan.mode == "converge" else "throughput_train"
    found = [(path, figures) for place in places for path, figures in _figures(plan, place)]
    equal = [(path, one) for path, one in found if one.plan_digest == plan.plan_digest]
    if spread := _spread(equal, name):
        return spread
    for path, one in found:
        if spread := _spread([(path, one)], name):
            return spread.model_copy(update={"source": f"{spread.source}, of another plan_digest"})
    return None


def _spread(found: Sequence[tuple[Path, Figures]], name: str) -> Spread | None:
    kept = [(path, one.metric[name].values) for path, one in found if name in one.metric]
    values = [value for _, some in kept for value in some]
    if len(values) < LEAST_RUNS or min(values) <= 0:
        return None
    first = kept[0][0]
    source = first.name if len(kept) == 1 else f"{len(kept)} measurements, the last of them {first.name}"
    return Spread(variation=stdev(values) / fmean(values), runs=len(values), source=source)


def _figures(plan: Plan, place: Path) -> Iterator[tuple[Path, Figures]]:
    """What `place` knows of the plan's task on its machine, the newest result first; what is unreadable is passed over.

    The path of a result is its session's, or the folder that it lies in.
    """
    task = (plan.model, plan.framework, plan.preset, plan.mode, str(plan.topology))
    seen: set[Path] = set()
    for path in _files(plan.id, place):
        real = path.resolve()
        if real in seen or not is_plain_file(path):
            continue
        seen.add(real)
        try:
            figures = figures_of(Result.read(path)) if path.suffix == ".json" else read_baseline(path)
        except (UsageProblem, OSError, ValueError):
            continue
        if figures.task == task and figures.place == (plan.vendor, plan.machine) and _measured(figures):
            yield (real.parent.parent if path.suffix == ".json" else path), figures


def _files(id: str, place: Path) -> Iterator[Path]:
    if not place.is_dir():
        return iter((place,))
    name = "result.json"
    sessions = sorted(place.glob(f"*/{id}/{name}"), reverse=True)
    # A folder of results holds as many files as runs left behind: nobody searches all of it for baselines.
    rest = islice(sessions, MOST_RESULTS) if sessions else baseline_files(place)
    return chain((place / name, place / id / name), rest)


def _measured(figures: Figures) -> bool:
    """Its numbers are good: every run reached the target, and no baseline is under suspicion."""
    if isinstance(figures, Baseline) and figures.state == "quarantined":
        return False
    return figures.outcome in ("failed: throughput", "failed: speedup") or figures.outcome.partition(":")[0] in (
        "passed",
        "inconclusive",
    )
