"""The training side for PaddlePaddle. A case's train.py needs `Task` and `run`."""

from suite.drivers.paddle.entry import run
from suite.drivers.paddle.task import Task

__all__ = ["Task", "run"]
