"""What a line of a log says, in words that all kinds of logs share. Standard library only."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Union


class Begun(NamedTuple):
    """Training begins: what the log says next is about it."""


class Fact(NamedTuple):
    """A number that holds for the whole run.

    Names: `examples` `epochs` `device_batch` `accumulation` `batch` (of all devices, accumulated) `steps`
    `epoch_steps` `trainable` `resumed_step`.
    """

    name: str
    value: int


class Bar(NamedTuple):
    """One drawing of a progress bar."""

    title: str
    step: int
    total: Optional[int]
    """None: the bar does not know."""
    seconds: float
    """Since the bar began, by its own clock, in whole seconds."""
    step_s: Optional[float]
    """Seconds of one step by the bar's own smoothed rate; None: not said."""
    values: Dict[str, str]
    """What stands behind the rate, as in `loss=0.5`."""

    @property
    def complete(self) -> bool:
        """Every step of a known total is done."""
        return self.total is not None and self.step >= self.total


class Progress(NamedTuple):
    """A drawing of the bar that belongs to training, from a log in which it can be told from all others."""

    step: int
    """Optimizer steps done, over all epochs."""
    total: Optional[int]
    epoch: Optional[int]
    """From 1; None: not said."""
    loss: Optional[float]
    samples: Optional[int]
    """Samples of all ranks up to this step; None: not said."""
    stated_s: Optional[float]
    """Seconds of one step as the log itself timed it; None: not said."""
    complete: bool = False
    """The bar is at its end, or knows of none."""


class Loss(NamedTuple):
    """A training loss, of the steps since the one before."""

    value: float


class NotFinite(NamedTuple):
    """A number that must be finite is not, or is shown as another: the training is lost."""

    what: str
    """The sentence."""
    step: Optional[int] = None
    """Of the number; None: the last one that was seen."""


class Epoch(NamedTuple):
    """So many epochs are done, as a fraction."""

    done: float


class EvaluationBegun(NamedTuple):
    """The model is being evaluated."""


class EvaluationDone(NamedTuple):
    """The result of an evaluation."""

    metrics: Dict[str, float]
    seconds: Optional[float]
    """How long it took by the script's own clock; None: not said."""
    step: Optional[int] = None
    """The step it was made at; None: the last one that was seen."""


class TrainRuntime(NamedTuple):
    """How long training took in all, by the script's own clock."""

    seconds: float


class Completed(NamedTuple):
    """The script says that its training came to an orderly end."""

    by_limit: bool
    """Because its time was over, not its steps."""


class Folder(NamedTuple):
    """Where the script leaves its results."""

    path: str


Observation = Union[
    Begun,
    Fact,
    Bar,
    Progress,
    Loss,
    NotFinite,
    Epoch,
    EvaluationBegun,
    EvaluationDone,
    TrainRuntime,
    Completed,
    Folder,
]
