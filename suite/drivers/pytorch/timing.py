"""A window's clock is the same in every framework."""

from suite.drivers.timing import WindowClock

__all__ = ["WindowClock"]
