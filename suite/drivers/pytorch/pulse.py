"""Heartbeats and the last word are the same in every framework."""

from suite.drivers.pulse import ENDING, Pulse, write_stop

__all__ = ["ENDING", "Pulse", "write_stop"]
