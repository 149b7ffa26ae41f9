"""The endless stream of a rank's micro-batches over the epochs, each with its counts and its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from suite.drivers.events import RunProblem


class Micro(NamedTuple):
    """One micro-batch of this rank."""

    batch: Any
    samples: int
    tokens: int
    epoch: int
    """From 1."""
    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    """Place in its epoch, from 0."""
    last: bool = False
    """No other follows in its epoch."""
    mark: Any = None
    """Its fingerprint; None: random data."""


def epochs(task: Any, epoch: int = 1, skip: int = 0) -> Iterator[Micro]:
    """Micro-batches from `epoch` on, after its first `skip`; ranks may differ in the length of an epoch."""
    for place, batch in placed(task.train_batches, task, epoch, skip):
        yield counted(task, batch, *place)


def placed(
    source: Callable[[int, int], Iterable[Any]], task: Any, epoch: int, skip: int
) -> Iterator[tuple[tuple[int, int, bool], Any]]:
    """((epoch, index, last), item) of what `source(epoch, skip)` gives, epoch after epoch."""
    while True:
        index, held = skip, None  # one is held back: only the end of an epoch shows which is its last
        for item in source(epoch, skip):
            if held is not None:
                yield (epoch, index - 1, False), held
            held = item
            index += 1
        if held is not None:
            yield (epoch, index - 1, True), held
        if index == 0:
            raise RunProblem(
                f"rank {task.rank} has no training batch in epoch {epoch}: lower train_batch_size or use fewer ranks"
            )
        epoch, skip = epoch + 1, 0


def synthetic(task: Any) -> Iterator[Micro]:
    """Micro-batches of random data, all of one epoch."""
    for index, batch in enumerate(task.synthetic_batches()):
        yield counted(task, batch, 1, index)
    raise RunProblem("Task.synthetic_batches ended: it must yield for ever")


def counted(task: Any, batch: Any, epoch: int, index: int, last: bool = False) -> Micro:
    """The Micro of a batch on the host: a count on the device would wait for it."""
    counts = task.count(batch)
    return Micro(batch, int(counts["samples"]), int(counts["tokens"]), epoch, index, last)
