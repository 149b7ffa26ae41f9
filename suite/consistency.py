"""What the streams of a run must agree on, with each other, with the plan, and with the harness's own witness.

An edited number, line or file is told wherever something else repeats it:
- in one stream: time never goes back, windows follow each other without a gap, do not overlap in time, and add up
  (count, step times, data waits); nothing follows run_stop, whose step and wall clock agree with the rest;
- between ranks: one run id, one world size, equal windows; every expected rank has a stream, and no other one exists;
- with the plan: global batch x steps bounds the samples of every window and, but for the short batch that may end each
  epoch, of the run; every eval_result's sample count is the sum over all ranks' windows up to it; `met` follows from
  the value; a target said to be reached was met; the clock started before the first step;
- with the harness: rank 0's clock against the witness's, and every stream against the digest that the witness took.
Where there is no such digest, a change within a window's 1 % is not told, nor one of a value that nothing repeats (a
loss, a token count, the quality of an evaluation that meets the target either way).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from suite.artifacts import event_seals
from suite.events import BadEvents, Event, shown
from suite.plan import Plan, Quality
from suite.rank_stream import CLOCK_SLACK_S, RankStream

WITNESS_SLACK = 0.02
WITNESS_SLACK_S = 2.0
"""The events may claim this much more time than can have passed: clocks of hosts run apart."""
WITNESS_LATE_S = 5.0
"""And this much less than must have passed: a busy host may stop a rank between its stamp and its line."""


def expected_streams(plan: Plan, header: Event) -> int:
    """How many streams the run must have: one a device, unless one stream drives several (its header's `devices`)."""
    world, devices = plan.world_size, header.count("devices") if header.has("devices") else 1
    if devices < 1 or world % devices:
        raise header.bad(f"devices is {devices}, which does not divide the {world} of the plan")
    streams = world // devices
    if header.count("world_size") != streams:
        raise header.bad(f"world_size is {header.count('world_size')}, the plan has {streams}")
    return streams


def check_files(run_dir: Path, streams: int) -> None:
    """Every expected stream exists, and none else. Raises BadEvents naming the file."""
    wanted = {f"rank{rank}.jsonl" for rank in range(streams)}
    try:
        found = {path.name for path in (run_dir / "events").iterdir() if path.suffix == ".jsonl"}
    except OSError:
        found = set()
    for name in sorted(wanted - found):
        raise BadEvents(f"events/{name}: missing, though the run ended as if every rank had finished")
    for name in sorted(found - wanted):
        raise BadEvents(f"events/{name}: no rank of this run, which has {streams}")


def check_against(first: RankStream, stream: RankStream, *, logged: bool = False) -> None:
    """A further rank agrees with rank 0 about the run and its windows; `logged`: only rank 0's log tells any.

    Raises BadEvents.
    """
    for key in ("run", "world_size"):
        if stream.header.data.get(key) != first.header.data.get(key):
            raise stream.header.bad(
                f"{key} is {shown(stream.header.data.get(key))}, on rank 0 {shown(first.header.data.get(key))}"
            )
    if logged:
        if stream.windows:
            raise BadEvents(f"events/rank{stream.rank}.jsonl: steps on this rank, though rank 0's log tells them all")
        return
    ours, theirs = ([(w.first, w.count) for w in s.windows] for s in (stream, first))
    if ours == theirs:
        return
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    mine, other = (windows[at] if at < len(windows) else None for windows in (ours, theirs))
    raise BadEvents(
        f"events/rank{stream.rank}.jsonl: window {at + 1} is {_window(mine)} on this rank, {_window(other)} on rank 0"
    )


def check_clock(stream: RankStream) -> None:
    """Rank 0's marks come in order: init_stop, run_start, then the first step or evaluation. Raises BadEvents."""
    start = stream.first("run_start")
    if start is None:
        raise BadEvents("events/rank0.jsonl: no run_start")
    names = [mark.name for mark in stream.marks]
    if names.count("run_start") > 1:
        raise start.bad("a second run_start in this stream")
    ready = stream.first("init_stop")
    if ready is not None and ready.t > start.t:
        raise start.bad("before init_stop")
    works = [window.start for window in stream.windows[:1]] + [mark.t for mark in stream.all("eval_start")[:1]]
    if works and min(works) < start.t - CLOCK_SLACK_S:
        raise start.bad(
            f"{start.t - min(works):.6g} s after training began: the clock must start before the first step"
        )
    resumed = start.count("resumed_from_step") if start.has("resumed_from_step") else 0
    if not resumed and start.has("active_s") and start.number("active_s") > 0:
        raise start.bad(f"active_s is {start.number('active_s')}, but nothing was resumed")
    if stream.windows and stream.windows[0].first != resumed + 1:
        raise start.bad(f"resumed_from_step is {resumed} but the first window begins at {stream.windows[0].first}")


def check_marks(plan: Plan, stream: RankStream) -> None:
    """Every mark with a step lies at the end of a window, the checksum at the last; the rank is where it says it is."""
    header, last = stream.header, stream.windows[-1].last if stream.windows else 0
    ends = {window.last for window in stream.windows} | {stream.windows[0].first - 1 if stream.windows else 0}
    for mark in stream.marks:
        if mark.name == "checksum" and mark.has("step") and mark.count("step") != last:
            raise mark.bad(f"step is {mark.count('step')} but the last window ended at step {last}")
        if mark.name.startswith(("eval_", "checkpoint_")) and mark.has("step") and mark.count("step") not in ends:
            raise mark.bad(f"step {mark.count('step')} is not the end of a window")
    if header.has("local_rank") and header.has("node_rank") and plan.evidence == "driver":
        place = header.count("node_rank") * plan.topology.nproc + header.count("local_rank")
        if place != stream.rank:
            raise header.bad(f"node_rank and local_rank make rank {place}")
    for event in (header, stream.stop):
        if event is not None and event.has("t_mono") and abs(event.number("t_mono") - event.t) > 1.0:
            raise event.bad(f"t_mono is {event.number('t_mono')} but t is {event.t}")


def check_samples(plan: Plan, stream: RankStream, window_samples: Sequence[int]) -> None:
    """The samples of all ranks add up to the global batch, to every evaluation and to run_stop. Raises BadEvents."""
    start = stream.first("run_start")
    if start is None:
        return
    if plan.evidence == "driver" or start.has("global_batch"):
        _check_batch(plan, stream, start, window_samples)
    sums = dict(zip((w.last for w in stream.windows), accumulate(window_samples)))
    resumed = start.count("resumed_from_step") if start.has("resumed_from_step") else 0
    # A resumed run goes on counting: its first evaluation shows from where, the others must follow.
    before = None if resumed else 0
    for mark in stream.all("eval_result"):
        step, samples = mark.count("step"), mark.count("samples")
        seen = sums.get(step, 0 if step == resumed else None)
        if seen is None:
            raise mark.bad(f"step {step} is not the end of a window")
        before = samples - seen if before is None else before
        if samples != before + seen or before < 0:
            raise mark.bad(
                f"samples is {samples} at step {step}, but the windows of all ranks add up to {before + seen}"
            )
    stop = stream.stop
    if stop is not None and stop.has("samples") and stop.text("status") == "success":
        total, own = sum(window_samples), sum(window.samples for window in stream.windows)
        if stop.count("samples") - (before or 0) not in (total, own) and not (resumed and before is None):
            raise stop.bad(f"samples is {stop.count('samples')} but the windows of all ranks add up to {total}")


def _check_batch(plan: Plan, stream: RankStream, start: Event, window_samples: Sequence[int]) -> None:
    batch = start.count("global_batch")
    sizes = [plan.params.get(key, 1) for key in ("train_batch_size", "gradient_accumulation_steps")]
    if "train_batch_size" in plan.params and all(isinstance(size, int) for size in sizes):
        # Model parallelism of others trains fewer samples a step than data parallelism over all devices, never more.
        largest = int(sizes[0]) * int(sizes[1]) * plan.data_ranks  # type: ignore[arg-type]
        if batch > largest or (batch < largest and plan.evidence == "driver"):
            raise start.bad(f"global_batch is {batch}, the plan has {largest}")
    for window, samples in zip(stream.windows, window_samples):
        if samples > batch * window.count:
            raise BadEvents(
                f"events: steps {window.first} to {window.last} claim {samples} samples of all ranks,"
                f" more than {window.count} steps x global batch {batch}"
            )
    steps, total = stream.steps, sum(window_samples)
    short = max(len(stream.all("epoch_start")), 1)
    if total < batch * max(steps - short, 0) + min(short, steps):
        raise BadEvents(f"events: {steps} steps x global batch {batch} but only {total} samples of all ranks")


def check_quality(quality: Quality, stream: RankStream, values: Sequence[float | str]) -> None:
    """`met` of every evaluation follows from its value, and a target said to be reached was met. Raises BadEvents."""
    met_once = False
    for mark, value in zip(stream.all("eval_result"), values):
        met = meets(quality, value)
        met_once |= met
        if isinstance(mark.data.get("met"), bool) and mark.data["met"] != met:
            raise mark.bad(f"met is {mark.data['met']} at {value}, but the target is {quality.target}")
    if stream.stop is not None and stream.stop.text("reason") == "target_reached" and not met_once:
        raise stream.stop.bad(f"reason is target_reached, but no evaluation meets {quality.target}")


def meets(quality: Quality, value: float | str) -> bool:
    """Whether an evaluation reaches the target; what is not finite never does."""
    if isinstance(value, str):
        return False
    return value >= quality.target if quality.better == "higher" else value <= quality.target


def check_witness(claimed_s: float, witness_s: tuple[float, float] | None) -> None:
    """Rank 0's own clock against the least and the most of the harness's.

    Raises BadEvents; without a witness nothing can be said.
    """
    if witness_s is None:
        return
    least, most = witness_s
    if claimed_s > most * (1 + WITNESS_SLACK) + WITNESS_SLACK_S:
        raise BadEvents(f"events/rank0.jsonl: claims {claimed_s:.6g} s, the harness saw only {most:.6g} s pass")
    if least > claimed_s * (1 + WITNESS_SLACK) + WITNESS_LATE_S:
        raise BadEvents(f"events/rank0.jsonl: claims {claimed_s:.6g} s of the {least:.6g} s that the harness saw pass")


def check_seals(run_dir: Path, seals: Mapping[str, str]) -> None:
    """Every stream is the file that the harness saw when the run had ended. Raises BadEvents naming the file."""
    if not seals:
        return
    now = event_seals(run_dir)
    for name in sorted(now.keys() | seals.keys()):
        if now.get(name) != seals.get(name):
            raise BadEvents(f"events/{name}: not the file that the harness saw when the run ended")


def _window(window: tuple[int, int] | None) -> str:
    return "absent" if window is None else f"{window[1]} steps from {window[0]}"
