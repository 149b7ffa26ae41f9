"""Events on and off in the driver's own loop, block by block: what they cost a step. Aim: at most 20 microseconds.

Off means that the event writer and the clock of steps are taken out. The net is tiny, so that the difference shows;
a window of ten steps is told at once, as in most minis.
"""

from __future__ import annotations

from benchmarks.overhead_loop import train
from benchmarks.sidebyside import Pair, told

BLOCK, WINDOW, PAIRS = 500, 10, 30
AIM_US = 20.0


def measure() -> list[str]:
    """Lines to print."""
    taken = train("tiny", BLOCK * (2 * PAIRS + 1), BLOCK, WINDOW)
    lines = []
    for clock in ("wall", "cpu"):
        pair = Pair(a=tuple(taken[f"driver_{clock}"]), b=tuple(taken[f"minimal_{clock}"]))
        lines.append(pair.line(f"a step, {clock.replace('cpu', 'CPU')}: with", "without", unit="us", scale=1e6 / BLOCK))
    costs = told(pair.differences, unit="microseconds of CPU a step", scale=1e6 / BLOCK)
    return [*lines, f"events and clock: {costs} (aim {AIM_US:g})"]
