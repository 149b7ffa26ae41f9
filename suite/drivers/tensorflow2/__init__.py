"""The training side for TensorFlow 2. A case's train.py needs `Task` and `run`.

They are imported when they are asked for: what does not compute (the control group, checkpoints, options) loads
without TensorFlow.
"""

from importlib import import_module

_HOMES = {"Task": "task", "run": "entry"}

__all__ = ["Task", "run"]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
