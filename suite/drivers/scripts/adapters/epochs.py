"""The numbers that hold for a whole run, and the epochs that follow from them. Standard library only."""

from __future__ import annotations

import math
from typing import Dict, List, Optional

from suite.drivers.scripts.adapters.observed import Fact

_NEARLY = 1e-9


class Known:
    """Facts as the log tells them. A number that is told twice differently is known no more."""

    def __init__(self, batch: Optional[int]) -> None:
        """`batch`: samples of a step of all ranks, as the command line asks for it, where the log does not say."""
        self._asked = batch
        self._facts: Dict[str, Optional[int]] = {}

    def learn(self, fact: Fact) -> bool:
        """Take it in; False if it is the first to contradict an earlier one."""
        known = self._facts.setdefault(fact.name, fact.value)
        if known is None or known == fact.value:
            return True
        self._facts[fact.name] = None
        return False

    def get(self, name: str) -> Optional[int]:
        """A fact; None: not said, or contradicted."""
        return self._facts.get(name)

    def ends_at(self, total: Optional[int]) -> None:
        """The training's own bar has this total: the number of steps, where no line says it."""
        if total is not None and "steps" not in self._facts:
            self._facts["steps"] = total

    @property
    def batch(self) -> Optional[int]:
        """Samples of a step of all ranks."""
        return self.get("batch") or self._asked

    @property
    def data_parallel(self) -> Optional[int]:
        """Devices that train different samples, as the batch sizes of the log imply."""
        batch, device, accumulation = (self.get(name) for name in ("batch", "device_batch", "accumulation"))
        if not batch or not device or not accumulation or batch % (device * accumulation):
            return None
        return batch // (device * accumulation)

    @property
    def epoch_steps(self) -> Optional[int]:
        """Steps of an epoch: as the log says, or as steps, epochs, examples and batch agree on."""
        said, steps, epochs = self.get("epoch_steps"), self.get("steps"), self.get("epochs")
        if said or not steps or not epochs or steps % epochs:
            return said or None
        batch, examples = self.batch, self.get("examples")
        each = steps // epochs
        if not batch or not examples:
            return None
        # A remainder is trained as a short step, or is left out.
        return each if each in (examples // batch, -(-examples // batch)) else None

    def samples_at(self, step: int) -> Optional[int]:
        """Samples of all ranks after `step`, no epoch counting more than the examples that there are."""
        batch, each, examples = self.batch, self.epoch_steps, self.get("examples")
        if batch is None:
            return None
        if not each or not examples:
            return step * batch
        whole, rest = divmod(step, each)
        return whole * min(each * batch, examples) + min(rest * batch, examples)


class Epochs:
    """Begins and ends of epochs, counted from 1; none where the log does not speak of epochs."""

    def __init__(self, known: Known, *, from_start: bool) -> None:
        self._known = known
        self._from_start = from_start
        self._open = 0
        """The epoch that is under way; 0: none."""
        self._ended = 0
        """The last one that is over."""

    def begin(self, t: float) -> List[Dict[str, object]]:
        """Training begins."""
        return self._to(1, t) if self._from_start else []

    def named(self, epoch: Optional[int], t: float) -> List[Dict[str, object]]:
        """The log names the epoch that is under way."""
        return [] if epoch is None or epoch <= self._open else self._to(epoch, t)

    def stepped(self, step: int, t: float) -> List[Dict[str, object]]:
        """So many steps are done."""
        each = self._known.epoch_steps
        if each and self._from_start:
            return self._over(step // each, step, t)
        last = self._known.get("steps")
        return self._close(t) if self._open and not self._from_start and step == last else []

    def done(self, epochs: float, step: int, t: float) -> List[Dict[str, object]]:
        """So many epochs are done, in the words of the log, which rounds: steps tell it better where they can."""
        if self._known.epoch_steps or not math.isfinite(epochs):
            return []
        return self._over(math.floor(epochs + _NEARLY), step, t)

    def _over(self, count: int, step: int, t: float) -> List[Dict[str, object]]:
        """`count` epochs are over; another one begins unless the training is over too."""
        if count <= self._ended or not self._open:
            return []
        steps = self._known.get("steps")
        return self._close(t, count) if steps is not None and step >= steps else self._to(count + 1, t)

    def _to(self, epoch: int, t: float) -> List[Dict[str, object]]:
        """End what is open and begin `epoch`, with those between, of which only the end was seen."""
        events: List[Dict[str, object]] = []
        for number in range(self._open + 1, epoch + 1):
            events += self._close(t)
            events.append({"event": "epoch_start", "t": t, "epoch": number})
            self._open = number
        return events

    def _close(self, t: float, last: int = 0) -> List[Dict[str, object]]:
        """End what is open, and with `last` all up to that one."""
        events = self._to(last, t) if last > self._open else []
        if self._open > self._ended:
            events.append({"event": "epoch_stop", "t": t, "epoch": self._open})
            self._ended = self._open
        return events
