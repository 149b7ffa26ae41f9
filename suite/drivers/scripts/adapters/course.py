"""From what lines of a log say to the events of a run: docs/contracts.md, section 3. Standard library only.

Every event has the time at which the line that told it arrived; nothing is written that no line has said. A window is
what happened between two drawings of the bar, its steps of equal length, for nobody saw more of them.
"""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Set, Tuple

from suite.drivers.scripts.adapters.bars import EVALUATION, OTHERS, TrainingBar, epoch_of
from suite.drivers.scripts.adapters.epochs import Epochs, Known
from suite.drivers.scripts.adapters.observed import (
    Bar,
    Begun,
    Completed,
    Epoch,
    EvaluationBegun,
    EvaluationDone,
    Fact,
    Loss,
    NotFinite,
    Observation,
    Progress,
    TrainRuntime,
)
from suite.drivers.scripts.adapters.text import finite

Event = Dict[str, object]

MOST_STEPS = 1_000_000
"""No two drawings of a bar are further apart: such a line is two lines that were mixed."""


class Course:
    """The course of one training, as far as it can be seen."""

    def __init__(self, batch: Optional[int], *, by_epochs: bool, results: bool) -> None:
        """`by_epochs`: training begins with epoch 1 without saying so; `results`: each evaluation prints its result."""
        self._known = Known(batch)
        self._bar = TrainingBar()
        self._epochs = Epochs(self._known, from_start=by_epochs)
        self._results = results
        self._started = False
        self._evaluating = False
        self._opened = 0.0
        """Where the next window begins."""
        self._last = -math.inf
        """Time of the last event."""
        self._step = 0
        self._samples = 0
        self._losses: List[float] = []
        self._evaluated: Set[int] = set()
        """Steps whose evaluation has been told."""
        self._complete = True
        """The training's bar is at its end."""
        self._completed: Optional[Completed] = None
        self._again = False
        self._lost = ""
        """Why the training is lost, though its steps went on."""
        self._stated: Dict[str, float] = {}

    def take(self, observation: Observation, t: float) -> List[Event]:
        """The events that this observation completes."""
        events = self._take(observation, t)
        for event in events:
            when = event["t"]
            if isinstance(when, (int, float)):
                self._last = max(self._last, when)
        return events

    def _take(self, observation: Observation, t: float) -> List[Event]:
        if isinstance(observation, Bar):
            return self._any_bar(observation, t)
        if isinstance(observation, Progress):
            return self._progress(observation, t)
        if isinstance(observation, Fact):
            return self._fact(observation, t)
        if isinstance(observation, EvaluationBegun):
            return self._begin_evaluation(t)
        if isinstance(observation, EvaluationDone):
            return self._end_evaluation(observation, t)
        if isinstance(observation, Epoch):
            return self._epochs.done(observation.done, self._step, t) if self._started else []
        self._remember(observation)
        return []

    def _remember(self, observation: Observation) -> None:
        """What is told later, with the next window or at the end."""
        if isinstance(observation, Loss):
            self._losses.append(observation.value)
        elif isinstance(observation, TrainRuntime):
            self._stated["train_runtime_s"] = observation.seconds
        elif isinstance(observation, Completed):
            # Time that is over is why the steps are; whichever line comes first.
            by_limit = observation.by_limit or (self._completed is not None and self._completed.by_limit)
            self._completed = Completed(by_limit)
        elif isinstance(observation, NotFinite):
            step = self._step if observation.step is None else observation.step
            self._lost = self._lost or f"{observation.what} (step {step})"
        elif isinstance(observation, Begun):
            self._losses.clear()
            self._again = self._again or (self._started and self._step > (self._known.get("resumed_step") or 0))

    def _fact(self, fact: Fact, t: float) -> List[Event]:
        if self._known.learn(fact):
            # The number of trainable parameters is the last line before training.
            return self._start(t) if fact.name == "trainable" and self._known.get("steps") else []
        text = f"the log says {fact.name} = {fact.value:,} after another number of it: neither is believed"
        return [{"event": "warning", "t": t, "text": text}]

    def _start(self, t: float) -> List[Event]:
        if self._started:
            return []
        self._started, self._opened = True, t
        self._step = self._known.get("resumed_step") or 0
        self._samples = 0
        trainable = self._known.get("trainable")
        ready: Event = {"event": "init_stop", "t": t}
        if trainable is not None:
            ready["trainable"] = trainable
        start: Event = {"event": "run_start", "t": t, "resumed_from_step": self._step}
        for key, value in (("global_batch", self._known.batch), ("data_parallel", self._known.data_parallel)):
            if value is not None:
                start[key] = value
        return [ready, start, *self._epochs.begin(t)]

    def _any_bar(self, bar: Bar, t: float) -> List[Event]:
        step = self._bar.step_of(bar, self._known.get("steps"))
        if step is not None:
            stated = bar.step_s if bar.complete else None
            if stated is not None:
                self._stated["step_s"] = stated
            loss = next((finite(value) for name, value in bar.values.items() if "loss" in name), None)
            complete = bar.complete or bar.total is None
            return self._progress(Progress(step, bar.total, epoch_of(bar), loss, None, None, complete), t)
        if not self._started:
            return [] if self._known.get("steps") or OTHERS.search(bar.title) else self._start(t)
        return self._other_bar(bar, t)

    def _other_bar(self, bar: Bar, t: float) -> List[Event]:
        """A bar beside the training's: an evaluation, if its title says so, or where a result follows each of them."""
        named = EVALUATION.search(bar.title) is not None
        if bar.step == 0 and (named or (self._results and not bar.title)):
            return self._begin_evaluation(t)
        if named and bar.complete and not self._results and self._evaluating:
            return self._end_evaluation(EvaluationDone({}, None), t)
        return []

    def _progress(self, seen: Progress, t: float) -> List[Event]:
        events = self._start(t)
        events += self._epochs.named(seen.epoch, t)
        count = seen.step - self._step
        if not 0 < count <= MOST_STEPS:
            return events
        if seen.epoch is None:
            self._known.ends_at(seen.total)
        self._complete = seen.complete
        if self._evaluating:
            events += self._end_evaluation(EvaluationDone({}, None), t, opens=False)
        events.append(self._window(seen, count, t))
        self._opened, self._step = t, seen.step
        return events + self._epochs.stepped(self._step, t)

    def _window(self, seen: Progress, count: int, t: float) -> Event:
        seconds = max(t - self._opened, 0.0)
        window: Event = {
            "event": "steps",
            "t": t,
            "first": self._step + 1,
            "count": count,
            "step_s": [seconds / count] * count,
            "window_s": seconds,
        }
        total = seen.samples if seen.samples is not None else self._known.samples_at(seen.step)
        if total is not None:
            window["samples"] = max(total - self._samples, 0)
            self._samples = total
        losses = [*self._losses, *([] if seen.loss is None else [seen.loss])][-count:]
        self._losses.clear()
        if losses:
            window["loss"] = losses
        if seen.stated_s is not None:
            window["stated_s"] = [seen.stated_s]
        return window

    def _begin_evaluation(self, t: float) -> List[Event]:
        # One before training says nothing about it.
        if not self._started or self._evaluating:
            return []
        self._evaluating = True
        return [{"event": "eval_start", "t": t, "step": self._step}]

    def _end_evaluation(self, done: EvaluationDone, t: float, *, opens: bool = True) -> List[Event]:
        # What is only read at the end is told if it is about the end, and nobody has told it, rounded, in the log.
        late = done.step is not None and (done.step != self._step or self._step in self._evaluated)
        if not self._started or late:
            return []
        begun = t if done.seconds is None else max(self._last, t - done.seconds)
        events = [] if self._evaluating else self._begin_evaluation(min(begun, t))
        if done.metrics:
            event: Event = {"event": "eval_result", "t": t, "step": self._step, "metrics": dict(done.metrics)}
            if self._known.samples_at(self._step) is not None or self._samples:
                event["samples"] = self._samples
            events.append(event)
            self._evaluated.add(self._step)
        self._evaluating = False
        self._opened = t if opens else self._opened
        return [*events, {"event": "eval_stop", "t": t, "step": self._step}]

    def finish(self, code: int, t: float) -> List[Event]:
        """The closing event: what the script's exit status and its log together say of how it ended."""
        status, reason, detail = self._end(code)
        stop: Event = {"event": "run_stop", "t": max(t, self._last), "status": status, "reason": reason}
        stop["step"] = self._step
        if detail:
            stop["detail"] = detail
        if self._samples:
            stop["samples"] = self._samples
        if self._stated:
            stop["stated"] = dict(self._stated)
        return [stop]

    def _end(self, code: int) -> Tuple[str, str, str]:
        """(status, reason, detail)."""
        if code in (-2, -15, 130, 143):
            return "aborted", "signal", f"the script left with status {code}"
        if code != 0:
            return "aborted", "exception", f"the script left with status {code}"
        if self._again:
            twice = "the script trains a second time: a run is one training, make two cases of it"
            return "aborted", "exception", twice
        if self._lost:
            return "aborted", "nonfinite_loss", self._lost
        if not all(map(math.isfinite, self._losses)):
            return "aborted", "nonfinite_loss", "the last loss of the log is not finite"
        if self._step == 0:
            return "aborted", "exception", "the script left with status 0, and its log shows no step of training"
        if self._completed is None and not self._complete:
            detail = f"the script left with status 0, but its log ends at step {self._step}, short of the bar's end"
            return "aborted", "exception", detail
        by_limit = self._completed is not None and self._completed.by_limit
        return "success", "limit" if by_limit else "max_steps", ""
