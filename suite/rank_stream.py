"""One rank's stream, reduced while it is read: windows, step times, marks. Lines that contradict each other raise."""

from __future__ import annotations

import math
import operator
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from suite.events import BadEvents, Event, finite, read_events, shown
from suite.rounding import exact_sum

SUM_TOLERANCE = 0.01
"""A window's step times must add up to its own length within this fraction, and so must those of all windows so far."""
HOST_SLACK_S = 1e-3
"""Or within this, where one clock read both."""
DEVICE_SLACK_S = 0.1
"""Or within this, where the device timed the steps: the host may learn late that they are done. What it learns late at
one window's end is missing from the next, so this does not add up."""
ROUNDING_S = 2e-6
"""Of instants, as they are written."""
CLOCK_SLACK_S = 0.05
"""Absolute slack of every comparison between instants of one clock: buffered lines are written a little late."""

NOT_FINITE = ("nan", "inf", "-inf")
"""How strict JSON spells a number that is not finite."""


@dataclass(slots=True)
class Window:
    """Steps between two synchronisations."""

    first: int
    count: int
    samples: int
    tokens: int
    skipped: int
    seconds: float
    t: float
    updates: int | None = None
    """How often the optimizer changed the model, as counted in it; None: not told."""
    data: str = ""
    """Digest of what it was trained on."""
    repeated: int = 0
    """Micro-batches whose data came before in their epoch."""
    late: float | None = None
    """Seconds from its end to the line that tells it; None: its end is only known by that line."""

    @property
    def start(self) -> float:
        """The instant at which the window opened, on the rank's own clock."""
        return self.t - self.seconds

    @property
    def last(self) -> int:
        """The last step."""
        return self.first + self.count - 1


@dataclass(slots=True)
class RankStream:
    """What one rank wrote."""

    rank: int
    header: Event
    windows: list[Window] = field(default_factory=list)
    step_s: array[float] = field(default_factory=lambda: array("d"))
    data_s: array[float] = field(default_factory=lambda: array("d"))
    forward_s: array[float] = field(default_factory=lambda: array("d"))
    """Of each step, the time in forward passes, which wait for no other rank; empty: not told."""
    losses: list[tuple[int, float]] = field(default_factory=list)
    stated: list[tuple[int, float]] = field(default_factory=list)
    """Step times that a log states, each with the last step of its window."""
    marks: list[Event] = field(default_factory=list)
    """Everything but windows, heartbeats and warnings, in order."""
    warnings: list[str] = field(default_factory=list)
    nonfinite_step: int | None = None
    """The first step whose loss is not finite."""
    before_checksum: float | None = None
    """The instant of the event before the checksum."""
    stop: Event | None = None
    covered: float = 0.0
    """Seconds of all windows so far."""
    drift: float = 0.0
    """Seconds by which the step times in them exceed that."""

    def all(self, name: str) -> list[Event]:
        """The marks of that name."""
        return [mark for mark in self.marks if mark.name == name]

    def first(self, name: str) -> Event | None:
        """The first mark of that name."""
        return next((mark for mark in self.marks if mark.name == name), None)

    @property
    def span_s(self) -> float:
        """From the header to run_stop."""
        return (self.stop.t if self.stop else self.marks[-1].t) - self.header.t

    @property
    def steps(self) -> int:
        """Steps of this stream."""
        return len(self.step_s)


def read_stream(path: Path, rank: int) -> RankStream:
    """The stream of `rank`, each line checked against those before it. A missing run_stop is left to the caller."""
    events = read_events(path)
    header = next(events, None)
    if header is None:
        raise BadEvents(f"events/{path.name}: empty, not even a header")
    if header.count("schema") != 1:
        raise header.bad(f"schema is {header.count('schema')}, this version reads 1")
    if header.count("rank") != rank:
        raise header.bad(f"rank is {header.count('rank')} in the file of rank {rank}")
    stream = RankStream(rank=rank, header=header, marks=[header])
    before = header.t
    for event in events:
        if stream.stop is not None:
            raise event.bad("a line after run_stop")
        if event.name == "steps":
            _add_window(stream, event)
        elif event.name == "warning":
            stream.warnings.append(event.text("text"))
        elif event.name != "heartbeat":
            stream.marks.append(event)
        if event.name == "checksum":
            stream.before_checksum = before
        if event.name == "run_stop":
            stream.stop = event
        if event.name != "heartbeat":
            before = event.t
    if stream.stop is not None:
        _check_stop(stream, stream.stop)
    return stream


def _add_window(stream: RankStream, event: Event) -> None:
    """Append one window. Raises BadEvents where its counts, its times or its place do not add up."""
    steps, waits = event.series("step_s"), event.series("data_s")
    count = event.count("count")
    if count < 1 or count != len(steps):
        raise event.bad(f"count is {count} but step_s holds {len(steps)} times")
    if len(waits) not in (0, count):
        raise event.bad(f"count is {count} but data_s holds {len(waits)} times")
    if waits and max(map(operator.sub, waits, steps)) > 1e-4:
        raise event.bad("a step waited longer for its data than it lasted")
    total = math.fsum(steps)
    seconds = event.number("window_s") if event.has("window_s") else total
    _check_sum(stream, event, total, seconds)
    until = event.number("until") if event.has("until") else event.t
    if until > event.t + ROUNDING_S:
        raise event.bad(f"until is {until:.6f}, after the line itself at {event.t:.6f}")
    window = Window(
        first=event.count("first"),
        count=count,
        samples=event.count("samples"),
        tokens=event.count("tokens") if event.has("tokens") else 0,
        skipped=event.count("skipped") if event.has("skipped") else 0,
        seconds=seconds,
        t=until,
        updates=event.count("updates") if event.has("updates") else None,
        data=event.text("data"),
        repeated=event.count("repeated") if event.has("repeated") else 0,
        late=event.t - until if event.has("until") else None,
    )
    _check_place(stream, window, event)
    stream.windows.append(window)
    stream.step_s.extend(steps)
    stream.data_s.extend(waits or array("d", bytes(8 * count)))
    stream.forward_s.extend(_forwards(event, count))
    stream.stated.extend((window.last, seconds) for seconds in event.series("stated_s"))
    _add_losses(stream, window, event)


def _check_sum(stream: RankStream, event: Event, total: float, seconds: float) -> None:
    """Step times against the window's length: of this one, and of all so far."""
    slack = DEVICE_SLACK_S if stream.header.text("timer") == "device_events" else HOST_SLACK_S
    if abs(total - seconds) > max(SUM_TOLERANCE * seconds, slack):
        raise event.bad(f"step_s adds up to {total:.6g} s but window_s is {seconds:.6g} s")
    stream.covered += seconds
    stream.drift += total - seconds
    if abs(stream.drift) > max(SUM_TOLERANCE * stream.covered, DEVICE_SLACK_S):
        raise event.bad(
            f"step_s of all windows so far is {stream.drift:+.6g} s from their window_s, {stream.covered:.6g} s in all"
        )


def _forwards(event: Event, count: int) -> array[float]:
    forwards = event.series("forward_s")
    if len(forwards) not in (0, count):
        raise event.bad(f"count is {count} but forward_s holds {len(forwards)} times")
    return forwards


def _check_place(stream: RankStream, window: Window, event: Event) -> None:
    if window.skipped > window.count:
        raise event.bad(f"skipped is {window.skipped} of {window.count} steps")
    previous = stream.windows[-1] if stream.windows else None
    if previous is not None and window.first != previous.last + 1:
        raise event.bad(f"first is {window.first} after a window that ended at step {previous.last}")
    opened = previous.t if previous is not None else stream.header.t
    slack = CLOCK_SLACK_S + SUM_TOLERANCE * window.seconds
    if window.start < opened - slack:
        raise event.bad(f"claims {window.seconds:.6g} s, {window.t - opened:.6g} s after the one before it")


def _add_losses(stream: RankStream, window: Window, event: Event) -> None:
    """Keep rank 0's losses; of any rank, find the first that is not finite."""
    values = event.data.get("loss") or ()
    if not isinstance(values, list | tuple) or len(values) > window.count:
        raise event.bad(f"loss is not a list of at most {window.count} numbers")
    if stream.rank and _all_finite(values):
        return
    stride = window.count / max(len(values), 1)
    for i, value in enumerate(values):
        step = window.first + int(i * stride)
        number = finite(value)
        if number is not None:
            if stream.rank == 0:
                stream.losses.append((step, number))
        elif value in NOT_FINITE:
            stream.nonfinite_step = step if stream.nonfinite_step is None else stream.nonfinite_step
        else:
            raise event.bad(f"loss holds {shown(value)}")


def _all_finite(values: list[float] | tuple[float, ...]) -> bool:
    """At one glance, for the many ranks whose losses nobody draws. Text among them, as JSON may hold, is not finite."""
    try:
        return math.isfinite(exact_sum(array("d", values)))
    except (TypeError, OverflowError):
        return False


def _check_stop(stream: RankStream, stop: Event) -> None:
    """The closing line agrees with what came before it, and the wall clock with the monotonic one."""
    if stop.text("status") not in ("success", "aborted"):
        raise stop.bad(f"status is {shown(stop.data.get('status'))}, not success or aborted")
    if stream.windows and stop.has("step") and stop.text("status") == "success":
        last = stream.windows[-1].last
        if stop.count("step") != last:
            raise stop.bad(f"step is {stop.count('step')} but the last window ended at step {last}")
    if stop.has("t_wall") and stream.header.has("t_wall"):
        wall = stop.number("t_wall") - stream.header.number("t_wall")
        # A clock that is set during the run jumps; two seconds and two percent are more than any slew.
        if abs(wall - stream.span_s) > 2.0 + 0.02 * stream.span_s:
            raise stop.bad(f"t_wall says the run took {wall:.6g} s, t says {stream.span_s:.6g} s")
