"""What transformers' Trainer writes: its INFO lines, its dictionaries of losses and results. Standard library only."""

from __future__ import annotations

import math
import re
from typing import Dict, List, Optional

from suite.drivers.scripts.adapters.observed import (
    Begun,
    Completed,
    Epoch,
    EvaluationBegun,
    EvaluationDone,
    Fact,
    Folder,
    Loss,
    NotFinite,
    Observation,
    TrainRuntime,
)
from suite.drivers.scripts.adapters.text import finite, number, whole_number

_HEADING = re.compile(r"\*{5} *(?:Running )?([A-Za-z]+) *(?:metrics *)?\*{5}")
_FACTS = {
    "Num examples": "examples",
    "Num Epochs": "epochs",
    "Num update steps per epoch": "epoch_steps",
    "Instantaneous batch size per device": "device_batch",
    "Total train batch size (w. parallel, distributed & accumulation)": "batch",
    "Gradient Accumulation steps": "accumulation",
    "Total optimization steps": "steps",
    "Number of trainable parameters": "trainable",
}
_FACT = re.compile(rf"(?P<words>{'|'.join(map(re.escape, _FACTS))}) *= *(?P<value>[\d,]+) *$")
_RESUMED = re.compile(r"Continuing training from global step (\d+) *$")
_SAVED = re.compile(r"Saving model checkpoint to (?P<folder>.+?)[/\\]checkpoint-\d+ *$")
_PEFT = re.compile(r"trainable params: ([\d,]+) \|\|")
_COMPLETED = re.compile(r"Training completed\. ")
# A dictionary as Python prints it: quoted names, numbers bare or (since transformers 5) quoted.
_DICTIONARY = re.compile(r"\{('\w+': (?:'[^'{}]*'|[^\s'{},]+)(?:, '\w+': (?:'[^'{}]*'|[^\s'{},]+))*)\}")
_ITEM = re.compile(r"'(\w+)': ('[^']*'|[^\s',]+)")
_EVAL = "eval_"
NOT_METRICS = ("runtime", "samples_per_second", "steps_per_second", "jit_compilation_time", "model_preparation_time")
"""What an evaluation says about its speed; not what it measured."""


class TrainerLines:
    """Reads the Trainer's lines. Facts count only below the heading of training, for evaluations have equal words."""

    def __init__(self) -> None:
        self._training = False

    def read(self, line: str) -> List[Observation]:
        """What one line says."""
        found = _HEADING.search(line)
        if found is not None:
            return self._heading(found[1].lower())
        fact = _FACT.search(line)
        if fact is not None:
            value = whole_number(fact["value"]) if self._training else None
            return [] if value is None else [Fact(_FACTS[fact["words"]], value)]
        peft = _PEFT.search(line)
        if peft is not None:
            value = whole_number(peft[1])
            return [] if value is None else [Fact("trainable", value)]
        resumed = _RESUMED.search(line)
        if resumed is not None:
            return [Fact("resumed_step", int(resumed[1]))]
        saved = _SAVED.search(line)
        if saved is not None:
            return [Folder(saved["folder"].strip())]
        said: List[Observation] = [Completed(by_limit=False)] if _COMPLETED.search(line) else []
        for dictionary in _DICTIONARY.finditer(line):
            said += from_items(dict(_ITEM.findall(dictionary[1])))
        return said

    def _heading(self, what: str) -> List[Observation]:
        self._training = what == "training"
        if self._training:
            return [Begun()]
        return [EvaluationBegun()] if what == "evaluation" else []


def from_items(items: Dict[str, str]) -> List[Observation]:
    """What one dictionary of the Trainer's log says, its numbers as text."""
    epoch = finite(items.get("epoch", ""))
    runtime = finite(items.get("train_runtime", ""))
    if runtime is not None:
        return [TrainRuntime(runtime)]
    if any(name.startswith(_EVAL) for name in items):
        # The epoch comes first: an evaluation at its end belongs to it.
        done = EvaluationDone(_metrics(items), finite(items.get(f"{_EVAL}runtime", "")))
        return [*_epochs(epoch), done, *_lost_evaluation(items)]
    loss = number(items.get("loss", ""))
    return [*([] if loss is None else [Loss(loss)]), *_lost_steps(loss, items), *_epochs(epoch)]


def _lost_evaluation(items: Dict[str, str]) -> List[Observation]:
    """A loss of an evaluation that is not finite."""
    loss = number(items.get(f"{_EVAL}loss", ""))
    if loss is None or math.isfinite(loss):
        return []
    return [NotFinite(f"{_EVAL}loss is {loss}")]


def _lost_steps(loss: Optional[float], items: Dict[str, str]) -> List[Observation]:
    """The Trainer shows a loss that is not finite as one of 0 (`logging_nan_inf_filter`); its gradients tell.

    Beside another loss, a norm that is not finite is a step that a loss scaler has skipped.
    """
    norm = number(items.get("grad_norm", ""))
    if loss != 0 or norm is None or math.isfinite(norm):
        return []
    return [NotFinite(f"grad_norm is {norm} beside a loss shown as 0, as the Trainer shows one that is not finite")]


def _metrics(items: Dict[str, str]) -> Dict[str, float]:
    """The measures of an evaluation by their names without `eval_`."""
    found: Dict[str, float] = {}
    for name, text in items.items():
        value: Optional[float] = number(text)
        short = name[len(_EVAL) :]
        if name.startswith(_EVAL) and value is not None and short not in NOT_METRICS:
            found[short] = value
    return found


def _epochs(done: Optional[float]) -> List[Observation]:
    return [] if done is None else [Epoch(done)]
