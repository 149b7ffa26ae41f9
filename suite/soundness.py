"""What a sound training shows of itself, held together: updates, data, evaluations, precision, the clock's windows.

The driver counts and reads these where they happen, not where they are told; each check holds one such thing to what
the events claim. A stream of a framework whose driver does not tell a thing is not held to it. Whoever forges all of
them consistently is told only by the witnesses: the harness's clock, the monitor, and the quality evaluated again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

from suite.consistency import meets
from suite.events import BadEvents, Event, finite, shown
from suite.plan import Plan
from suite.rank_stream import CLOCK_SLACK_S, RankStream

REPEATED = 0.1
"""Share of micro-batches whose data an epoch may hold twice: data sets with a batch of one have equal samples."""
APART = 0.05
"""Share of the windows' time that may lie between them: they touch, but for the writing of a line."""
PRECISION = ("compute", "autocast", "tf32", "matmul")
BETWEEN = ("eval_", "checkpoint_")
"""Marks of work that lies between two windows."""


def check_sound(plan: Plan, first: RankStream) -> None:
    """All that rank 0 alone shows. Raises BadEvents."""
    check_rank(plan, first)
    if plan.evidence == "driver":
        check_touching(first)
        if plan.mode == "converge":
            check_evaluations(plan, first)


def check_rank(plan: Plan, stream: RankStream) -> None:
    """All that any rank shows. Raises BadEvents."""
    _check_device(plan, stream)
    _check_updates(stream)
    _check_repeats(plan, stream)
    _check_precision(stream)


def _check_device(plan: Plan, stream: RankStream) -> None:
    """The type is the plan's; the name was compared from inside, before the first step."""
    kind = stream.header.table("device").get("type")
    if plan.evidence == "driver" and isinstance(kind, str) and kind and kind != plan.device.type:
        raise stream.header.bad(f"device type is {shown(kind)}, the plan's is {plan.device.type}")


def _check_updates(stream: RankStream) -> None:
    for window in stream.windows:
        due = window.count - window.skipped
        if window.updates is not None and window.updates != due:
            raise BadEvents(
                f"events/rank{stream.rank}.jsonl: the optimizer made {window.updates} updates up to step {window.last},"
                f" where {window.count} steps from {window.first} claim {due}"
            )


def _check_repeats(plan: Plan, stream: RankStream) -> None:
    accumulation = plan.params.get("gradient_accumulation_steps", 1)
    micros = stream.steps * (accumulation if isinstance(accumulation, int) else 1)
    repeated = sum(window.repeated for window in stream.windows)
    if repeated > REPEATED * micros:
        raise BadEvents(
            f"events/rank{stream.rank}.jsonl: {repeated} of {micros} micro-batches were trained on before in their"
            " epoch"
        )


def check_shared(streams: Iterable[tuple[int, str]]) -> None:
    """No two ranks began with the same data; (rank, data of its first window) of those that count their own.

    Raises BadEvents.
    """
    owners: dict[str, int] = {}
    for rank, data in streams:
        owner = owners.setdefault(data, rank)
        if data and owner != rank:
            raise BadEvents(f"events: ranks {owner} and {rank} train on the same data: each must have its own share")


def first_data(stream: RankStream) -> str:
    """What the first window of a rank was trained on; empty where it does not tell, or counts no samples."""
    window = stream.windows[0] if stream.windows else None
    return window.data if window is not None and window.samples else ""


def _check_precision(stream: RankStream) -> None:
    """Read again after the last step, it is still what the header says."""
    checksum, before = stream.first("checksum"), stream.header.table("precision")
    after = checksum.table("precision") if checksum is not None else {}
    for key in PRECISION:
        if checksum is not None and key in after and after[key] != before.get(key):
            raise checksum.bad(
                f"{key} precision is {shown(after[key])} after training, {shown(before.get(key))} in the header"
            )


def check_touching(stream: RankStream) -> None:
    """Each window of rank 0 opens where the one before it ended, unless other work lies between. Raises BadEvents.

    Of a driver that tells no updates, the ledger alone says where time went.
    """
    if not all(window.updates is not None for window in stream.windows):
        return
    works = [mark.t for mark in stream.marks if mark.name.startswith(BETWEEN)]
    apart = covered = 0.0
    for before, after in pairwise(stream.windows):
        if not any(before.t <= t <= after.t for t in works):
            # Signed, so that the moments in which lines are written cancel out.
            apart += after.start - before.t
            covered += after.seconds
    if apart > APART * covered + 2 * CLOCK_SLACK_S:
        raise BadEvents(
            f"events/rank0.jsonl: {apart:.3g} s lie between windows that cover {covered:.3g} s and should touch:"
            " steps were not timed to their end"
        )


def check_evaluations(plan: Plan, stream: RankStream) -> None:
    """Every result belongs to an evaluation, of the whole set, in evaluation mode; meeting the target ends the run.

    Raises BadEvents.
    """
    begun: Event | None = None
    met: Event | None = None
    counted: object = plan.quality.counted
    for mark in stream.marks:
        if mark.name == "eval_start":
            begun = mark
        if mark.name != "eval_result":
            continue
        if begun is None or begun.data.get("step") != mark.data.get("step"):
            raise mark.bad(f"a result at step {shown(mark.data.get('step'))} without an eval_start of its own")
        begun = None
        _check_mode(mark)
        counted = _same_count(plan, mark, counted)
        value = finite(mark.table("metrics").get(plan.quality.metric))
        # Only a driver that tells how it evaluated is known to stop there.
        if value is not None and mark.has("training") and meets(plan.quality, value):
            met = met or mark
    if met is not None and stream.windows and stream.windows[-1].t > met.t:
        raise met.bad("the target is met here, but training went on")


def _check_mode(mark: Event) -> None:
    training = mark.data.get("training")
    if isinstance(training, int) and training > 0:
        raise mark.bad(f"{training} modules were evaluated in training mode")


def _same_count(plan: Plan, mark: Event, counted: object) -> object:
    """What this evaluation counted, if it is what the target says, else the evaluations before it."""
    found = finite(mark.table("counted").get(plan.quality.metric))
    if found is None:
        return counted
    if counted is not None and found != counted:
        source = "the case's target" if plan.quality.counted is not None else "the evaluation before it"
        raise mark.bad(f"{plan.quality.metric} is of {found:g}, where {source} counts {counted:g}")
    return found


def trace(stream: RankStream) -> str:
    """A digest of what was trained on and what came of it, step by step; empty where the events do not tell."""
    if not stream.windows or not stream.losses or not all(window.data for window in stream.windows):
        return ""
    told = [window.data for window in stream.windows], stream.losses
    return hashlib.sha256(repr(told).encode()).hexdigest()


def twins(traces: Sequence[str]) -> tuple[int, int] | None:
    """Places of the first two runs that were one and the same; None where all differ."""
    seen: dict[str, int] = {}
    for place, one in enumerate(traces):
        if one and seen.setdefault(one, place) != place:
            return seen[one], place
    return None
