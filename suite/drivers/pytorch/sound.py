"""A sound run is the same in every framework."""

from suite.drivers.sound import Sound

__all__ = ["Sound"]
