"""Slots and hooks are the same in every framework."""

from suite.drivers.slots import HOOKS, UNREAD, Runtime, Slots, fill_slots

__all__ = ["HOOKS", "UNREAD", "Runtime", "Slots", "fill_slots"]
