"""What NeMo and Lightning write: progress lines, validation bars, the end by time. Standard library only.

    Epoch 0: :   2%|▏  | 180/10050 [40:46<37:16:04, v_num=m9yd, reduced_train_loss=5.640, global_step=179.0,
    consumed_samples=92160.0, train_step_timing in s=13.40]

`v_num` is the logger's version, no loss. `global_step` is that of the batch just trained, counted from 0, and goes on
from epoch to epoch, which the bar does not.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from suite.drivers.scripts.adapters.bars import bars_in, epoch_of
from suite.drivers.scripts.adapters.observed import (
    Bar,
    Begun,
    Completed,
    EvaluationBegun,
    EvaluationDone,
    Fact,
    Observation,
    Progress,
)
from suite.drivers.scripts.adapters.text import finite, number

_EPOCH = re.compile(r"Epoch \d+:*")
_VALIDATION = re.compile(r"Validation(?: DataLoader \d+)?")
_TIME_OVER = re.compile(r"Time limit reached\. ")
_STOPPED = re.compile(r"`?Trainer\.fit`? stopped: `?max_(?P<what>steps|epochs|time)")
_TRAINABLE = re.compile(r"^ *(?P<value>\d+) +Trainable params *$")
"""Lightning's summary rounds what is large, as in `6.7 B`: only a number that is written out is one."""
_VAL = re.compile(r"val_\w+|\w+_val")


class ProgressLines:
    """Reads the lines of rank 0; the others' have no progress."""

    def __init__(self) -> None:
        self._begun = False
        self._validating = False
        self._before: Optional[int] = None
        """Steps of earlier runs that `global_step` counts as well."""
        self._shown: Tuple[int, Dict[str, float]] = (0, {})
        """Step and validation results of the last progress line."""

    def read(self, line: str) -> List[Observation]:
        """What one line says."""
        said: List[Observation] = []
        for bar in bars_in(line):
            if _EPOCH.fullmatch(bar.title):
                said += self._training(bar)
            elif _VALIDATION.fullmatch(bar.title) and self._begun and not self._validating:
                self._validating = True
                said.append(EvaluationBegun())
        if _TIME_OVER.search(line):
            said.append(Completed(by_limit=True))
        stopped = _STOPPED.search(line)
        if stopped is not None:
            said.append(Completed(by_limit=stopped["what"] == "time"))
        trainable = _TRAINABLE.match(line)
        if trainable is not None:
            said.append(Fact("trainable", int(trainable["value"])))
        return said

    def _training(self, bar: Bar) -> List[Observation]:
        begun: List[Observation] = [] if self._begun else [Begun()]
        self._begun = True
        values = bar.values
        last, samples = finite(values.get("global_step", "")), finite(values.get("consumed_samples", ""))
        step = self._step(bar, last)
        epoch = epoch_of(bar)
        progress = Progress(
            step=step,
            total=bar.total,
            epoch=None if epoch is None else epoch + 1,
            loss=number(values.get("reduced_train_loss", values.get("train_loss", values.get("loss", "")))),
            samples=None if samples is None or self._before else int(samples),
            stated_s=finite(values.get("train_step_timing in s", "")),
            complete=bar.complete or bar.total is None,
        )
        return [*begun, *_batch(samples, last), *self._validated(step, values), progress]

    def _step(self, bar: Bar, last: Optional[float]) -> int:
        if last is None:
            return max(bar.step, self._shown[0])
        if self._before is None:
            self._before = max(int(last) + 1 - bar.step, 0)
        return int(last) + 1 - self._before

    def _validated(self, step: int, values: Dict[str, str]) -> List[Observation]:
        """The result of a validation stands in the progress line after it, and stays there until the next one's."""
        found = {name: value for name, text in values.items() for value in [number(text)] if value is not None}
        metrics = {name: value for name, value in found.items() if _VAL.fullmatch(name)}
        shown, self._shown = self._shown, (step, metrics)
        if not self._validating or shown == self._shown:
            return []
        self._validating = False
        return [EvaluationDone(metrics, None)]


def _batch(samples: Optional[float], last: Optional[float]) -> List[Observation]:
    """The global batch, where the samples consumed are a multiple of the steps."""
    if samples is None or last is None or samples <= 0 or samples % (last + 1):
        return []
    return [Fact("batch", int(samples // (last + 1)))]
