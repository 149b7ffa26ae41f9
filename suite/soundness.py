"""What a sound training shows of itself, held together: updates, data, evaluations, precision, the clock's windows.

The driver counts and reads these where they happen, not where they are told; each check holds one such thing to what
the events claim. A stream of a framework whose driver does not tell a thing is not held to it. Whoever forges all of
them consistently is told only by the witnesses: the harness's clock, the monitor, and the quality evaluated again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from suite.consistency import meets
from suite.events import BadEvents, Event, finite, shown
from suite.plan import Plan
from suite.rank_stream import CLOCK_SLACK_S, RankStream
from suite.rounding import alike, exact_sum

REPEATED = 0.1
"""Share of micro-batches whose data an epoch may hold twice: data sets with a batch of one have equal samples."""
COMPARED = 64
"""Windows of each rank whose data is compared with that of the others: of a thousand ranks, all would be too many."""
ALIKE = 2
"""Windows that two ranks must share, of two or more."""
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
    _check_all_tell(stream)
    _check_updates(stream)
    _check_repeats(plan, stream)
    _check_precision(stream)


def _check_device(plan: Plan, stream: RankStream) -> None:
    """The type is the plan's; the name was compared from inside, before the first step."""
    kind = stream.header.table("device").get("type")
    if plan.evidence == "driver" and isinstance(kind, str) and kind and kind != plan.device.type:
        raise stream.header.bad(f"device type is {shown(kind)}, the plan's is {plan.device.type}")


def check_own(plan: Plan, run: Mapping[str, object], first: RankStream) -> None:
    """run.json (empty: unreadable), the plan and rank 0's stream are of one run, broken on purpose or not.

    Raises BadEvents.
    """
    header = first.header
    if "run" in run and header.has("run") and run["run"] != header.data["run"]:
        raise header.bad(f"run is {shown(header.data['run'])}, in run.json {shown(run['run'])}")
    if "id" in run and run["id"] != plan.id:
        raise BadEvents(f"run.json: id is {shown(run['id'])}, the plan's is {plan.id}")
    # The header is sealed: what is taken out of plan.json and run.json later still stands there.
    for where, name in (("run.json", run.get("sabotage")), ("events/rank0.jsonl:1", header.data.get("sabotage"))):
        if name is not None and name != plan.sabotage:
            raise BadEvents(f"{where}: broken on purpose (sabotage {shown(name)}), which the plan does not say")


def _check_all_tell(stream: RankStream) -> None:
    """What is told once is told always: a driver counts, or it does not."""
    for what, told in (
        ("updates", [window.updates is not None for window in stream.windows]),
        ("training", [mark.has("training") for mark in stream.all("eval_result")]),
        ("asked", [mark.has("asked") for mark in stream.all("eval_result")]),
    ):
        if any(told) and not all(told):
            raise BadEvents(f"events/rank{stream.rank}.jsonl: {what} is told {sum(told)} times of {len(told)}")
    checksum = stream.first("checksum")
    if checksum is not None and not checksum.has("precision") and any(w.updates is not None for w in stream.windows):
        raise checksum.bad("no precision, though this driver reads it again")


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


def check_shared(first: RankStream, told: Iterable[tuple[int, tuple[str, ...]]]) -> None:
    """No two ranks train on the same data; (rank, `own_data`) of each. Raises BadEvents.

    Equal samples may meet by chance, the likelier the more ranks there are: one window, or a few of many, prove
    nothing. Nor does anything where each step is an epoch: a global batch that is larger than the data set is filled
    from its beginning.
    """
    if 1 < first.steps <= len(first.all("epoch_start")):
        return
    owners: dict[tuple[int, str], int] = {}
    for rank, data in told:
        others: dict[int, int] = {}
        for place, one in enumerate(data):
            owner = owners.setdefault((place, one), rank)
            if owner != rank:
                others[owner] = others.get(owner, 0) + 1
        for owner, shared in others.items():
            if shared > REPEATED * len(data) and shared >= min(len(data), ALIKE):
                raise BadEvents(
                    f"events: ranks {owner} and {rank} train on the same data in {shared} of {len(data)} windows: each"
                    " must have its own share"
                )


def own_data(stream: RankStream) -> tuple[str, ...]:
    """What the first windows of a rank were trained on; empty where it does not tell, or counts no samples."""
    return tuple(window.data for window in stream.windows[:COMPARED] if window.data and window.samples)


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
    """Each window of rank 0 opens where the one before it ended, or where other work between them did.

    Raises BadEvents. Of a driver that tells no updates, the ledger alone says where time went.
    """
    if not all(window.updates is not None for window in stream.windows):
        return
    works = [mark.t for mark in stream.marks if mark.name.startswith(BETWEEN)]
    apart, covered = _over(stream.windows[-1].late) if stream.windows else 0.0, 0.0
    for before, after in pairwise(stream.windows):
        between = [t for t in works if before.t <= t <= after.t]
        if not between:
            # Signed, so that the moments in which lines are written cancel out.
            apart += after.start - before.t
        elif after.late is not None:
            # What the device did after the window's end, and before the next one began.
            apart += _over(before.late) + _over(after.start - max(between))
        else:
            continue
        covered += after.seconds
    covered = covered or exact_sum(window.seconds for window in stream.windows)
    if apart > APART * covered + 2 * CLOCK_SLACK_S:
        raise BadEvents(
            f"events/rank0.jsonl: {apart:.3g} s lie between windows that cover {covered:.3g} s and should touch:"
            " steps were not timed to their end"
        )


def _over(seconds: float | None) -> float:
    """What is more than the pause of a busy host; of an end that is not told, nothing is known."""
    return 0.0 if seconds is None else max(seconds - CLOCK_SLACK_S, 0.0)


def check_evaluations(plan: Plan, stream: RankStream) -> None:
    """Every result belongs to an evaluation, of the whole set, in evaluation mode; meeting the target ends the run.

    Raises BadEvents.
    """
    begun: Event | None = None
    met: Event | None = None
    counted: object = plan.quality.counted
    asked = plan.quality.asked
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
        asked = _same_questions(plan, mark, asked)
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
    if counted is not None and not alike(found, counted):
        source = "the case's target" if plan.quality.counted is not None else "the evaluation before it"
        raise mark.bad(f"{plan.quality.metric} is of {found:g}, where {source} counts {counted:g}")
    return found


def _same_questions(plan: Plan, mark: Event, asked: str | None) -> str | None:
    """The digest of what this evaluation asked, if it is the target's, else that of the evaluations before it."""
    if not mark.has("asked"):
        if plan.quality.asked is not None and plan.evidence == "driver":
            raise mark.bad("nothing tells what was asked, where the case's target does: Task.evaluate calls self.asks")
        return asked
    found = mark.text("asked")
    if asked is not None and found != asked:
        source = "the case's target" if plan.quality.asked is not None else "the evaluation before it"
        raise mark.bad(f"other questions were asked (asked is {shown(found)}) than {source} asks ({asked})")
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
