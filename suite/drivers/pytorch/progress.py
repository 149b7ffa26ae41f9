"""The cursor is the same in every framework."""

from suite.drivers.progress import Progress

__all__ = ["Progress"]
