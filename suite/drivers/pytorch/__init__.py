"""The training side for PyTorch. A case's train.py needs `Task` and `run`."""

from suite.drivers.pytorch.entry import run
from suite.drivers.pytorch.task import Task

__all__ = ["Task", "run"]
