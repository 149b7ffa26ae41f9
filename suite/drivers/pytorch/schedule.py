"""Learning rates are the same function in every framework."""

from suite.drivers.schedule import NAMES, Schedule

__all__ = ["NAMES", "Schedule"]
