"""Where the time went: a partition of a run by LEDGER_PHASES, in which no second is counted twice."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.events import Event
from suite.measurement import LEDGER_PHASES
from suite.rank_stream import RankStream, Window
from suite.rounding import exact_sum
from suite.steady import Steady

UNACCOUNTED_FRACTION = 0.02
UNACCOUNTED_S = 1.0
"""More than the larger of both, of rank 0's part, in no phase: the measurement is invalid."""

HARNESS_PHASES = frozenset(("queue", "stage", "image", "prepare", "launch", "teardown"))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of rank 0's clock that claims to be one phase. Where spans overlap, the lowest precedence owns."""

    start: float
    stop: float
    precedence: int
    phase: str
    window: int | None = None
    """Index of the window, of a span of steps."""


def make_ledger(
    stream: RankStream, steady: Steady, harness: Mapping[str, float], *, logged: bool = False
) -> dict[str, float]:
    """Seconds by phase, with `wall_s` and `unaccounted_s`; a phase that did not happen is absent, not zero.

    Rank 0's part runs from its header to run_stop. Precedence: evaluation, checkpoint, steps, init, data. `init` is
    all from the header to init_stop; opening the data after run_start is `data_wait`; the closing checksum, which
    copies the model off the device, is `checkpoint`. The steps split into data_wait, compile (what the first step
    takes above the steady median), warmup (other steps before the steady state) and train. `logged`: nothing says when
    a script saves; what follows its last step, but for evaluations, counts as that.
    """
    begin, end = stream.header.t, stream.header.t + stream.span_s
    spans = _spans(stream, end)
    if logged and stream.windows:
        spans.append(Span(max(span.stop for span in spans), end, 6, "checkpoint"))
    seconds: dict[str, float] = {}
    for name, value in harness.items():
        if name in HARNESS_PHASES:
            seconds[name] = seconds.get(name, 0.0) + value
    owned = partition(spans, begin, end)
    for span, share in zip(spans, owned):
        if span.window is None:
            seconds[span.phase] = seconds.get(span.phase, 0.0) + share
    steps = {span.window: share for span, share in zip(spans, owned) if span.window is not None}
    for phase, share in _split_steps(stream, steady, steps).items():
        seconds[phase] = seconds.get(phase, 0.0) + share
    unaccounted = max(end - begin - exact_sum(owned), 0.0)
    ledger = {phase: seconds[phase] for phase in LEDGER_PHASES if seconds.get(phase)}
    return {**ledger, "wall_s": exact_sum([*ledger.values(), unaccounted]), "unaccounted_s": unaccounted}


def unaccounted_over(ledger: Mapping[str, float], rank_zero_s: float) -> float:
    """Seconds by which the unaccounted time exceeds what is allowed; negative where the ledger is good."""
    return ledger["unaccounted_s"] - max(UNACCOUNTED_FRACTION * rank_zero_s, UNACCOUNTED_S)


def partition(spans: Sequence[Span], begin: float, end: float) -> list[float]:
    """Seconds that each span owns within [begin, end]: every instant goes to the active span of lowest precedence."""
    order = sorted(range(len(spans)), key=lambda i: spans[i].start)
    instants = sorted({min(max(t, begin), end) for span in spans for t in (span.start, span.stop)})
    owned = [0.0] * len(spans)
    active: list[tuple[int, int]] = []
    upcoming = 0
    for here, there in pairwise(instants):
        while upcoming < len(order) and spans[order[upcoming]].start <= here:
            heapq.heappush(active, (spans[order[upcoming]].precedence, order[upcoming]))
            upcoming += 1
        while active and spans[active[0][1]].stop <= here:
            heapq.heappop(active)
        if active:
            owned[active[0][1]] += there - here
    return owned


def _spans(stream: RankStream, end: float) -> list[Span]:
    spans = [*_paired(stream, "eval", 0, end), *_paired(stream, "checkpoint", 1, end)]
    spans += [Span(w.start, w.t, 2, "train", i) for i, w in enumerate(stream.windows)]
    if ready := stream.first("init_stop"):
        spans.append(Span(stream.header.t, ready.t, 3, "init"))
    if (start := stream.first("run_start")) and (opened := _first_work(stream)) is not None:
        spans.append(Span(start.t, opened, 4, "data_wait"))
    if (checksum := stream.first("checksum")) and stream.before_checksum is not None:
        spans.append(Span(stream.before_checksum, checksum.t, 5, "checkpoint"))
    return [span for span in spans if span.stop > span.start]


def _first_work(stream: RankStream) -> float | None:
    """When the first window or evaluation began."""
    starts = [window.start for window in stream.windows[:1]]
    starts += [mark.t for mark in stream.all("eval_start")[:1]]
    return min(starts, default=None)


def _paired(stream: RankStream, phase: str, precedence: int, end: float) -> list[Span]:
    """Spans from each start to its stop; without one, to the next start of anything, a window included."""
    spans: list[Span] = []
    opened: Event | None = None
    for mark in stream.marks:
        if opened is not None and (mark.name == f"{phase}_stop" or mark.name.endswith("_start")):
            stop = mark.t if mark.name == f"{phase}_stop" else _cut(stream.windows, opened.t, mark.t)
            spans.append(Span(opened.t, stop, precedence, phase))
            opened = None
        if mark.name == f"{phase}_start":
            opened = mark
    if opened is not None:
        spans.append(Span(opened.t, _cut(stream.windows, opened.t, end), precedence, phase))
    return spans


def _cut(windows: Sequence[Window], start: float, stop: float) -> float:
    """`stop`, or where the first window after `start` opened."""
    return min((w.start for w in windows if start <= w.start < stop), default=stop)


def _split_steps(stream: RankStream, steady: Steady, owned: Mapping[int, float]) -> dict[str, float]:
    """The windows' seconds by phase. What a window does not own (an evaluation inside it) scales all its steps."""
    split = dict.fromkeys(("compile", "warmup", "train", "data_wait"), 0.0)
    # Without a steady state nobody can say where warm-up ended: all but the first step is then training.
    first_steady = 0 if steady.reason else steady.first
    index = 0
    for i, window in enumerate(stream.windows):
        steps = stream.step_s[index : index + window.count]
        waits = stream.data_s[index : index + window.count]
        total, waited = exact_sum(steps), exact_sum(waits)
        early = min(max(first_steady - index, 0), window.count)
        warm = exact_sum(steps[:early]) - exact_sum(waits[:early])
        first = max(steps[0] - waits[0] - steady.median_s, 0.0) if index == 0 else 0.0
        scale = owned.get(i, 0.0) / total if total else 0.0
        split["compile"] += scale * first
        split["data_wait"] += scale * waited
        if early:
            split["warmup"] += scale * (warm - first)
            split["train"] += scale * (total - waited - warm)
        else:
            split["train"] += scale * (total - waited - first)
        index += window.count
    return split
