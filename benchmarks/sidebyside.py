"""Two sides that take turns, A B A B …: absolute times of a busy host mean little, what neighbours differ in does."""

from __future__ import annotations

import math
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

COVERAGE = 0.95
"""Wanted of an interval; with fewer than six pairs it is the whole range, which covers less."""

LONGEST_S = 150.0
"""After so long no further pair is begun: on a crowded host there are fewer of them, and they are counted."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one command took, its descendants included."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Figures of two sides that took turns: `a[i]` and `b[i]` are neighbours."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """A minus B of each pair."""
        return tuple(x - y for x, y in zip(self.a, self.b))

    @property
    def ratios(self) -> tuple[float, ...]:
        """A over B of each pair."""
        return tuple(x / y for x, y in zip(self.a, self.b))

    def line(self, a: str, b: str, *, unit: str = "s", scale: float = 1.0) -> str:
        """One printed line: medians, then the median difference and ratio of the pairs, each with its interval."""
        return (
            f"{a}: {statistics.median(self.a) * scale:.3f} {unit}   {b}: {statistics.median(self.b) * scale:.3f} {unit}"
            f"   difference {told(self.differences, unit=unit, scale=scale)}"
            f"   ratio {told(self.ratios)}   ({len(self.a)} pairs)"
        )


def told(values: Sequence[float], *, unit: str = "", scale: float = 1.0) -> str:
    """`1.02 [0.99, 1.05]`: the median and its interval."""
    low, high = interval(values)
    middle = statistics.median(values)
    return f"{middle * scale:.4g} [{low * scale:.4g}, {high * scale:.4g}]{f' {unit}' if unit else ''}"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median: the narrowest order statistics that hold it in 95 % of all cases, whatever the distribution."""
    ordered, n = sorted(values), len(values)
    outside, cut = 0.0, 0
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - COVERAGE:
            break
        cut = k
    return ordered[cut], ordered[n - 1 - cut]


def cost(argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 900) -> Cost:
    """Of one command that must succeed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout_s)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} left with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Cost(wall_s=wall, cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def turns(a: Callable[[], Cost], b: Callable[[], Cost], rounds: int) -> tuple[Pair, Pair]:
    """Run A and B in turns, `rounds` times each or LONGEST_S long: their wall seconds, and their CPU seconds."""
    both, begin = [(a(), b())], time.monotonic()
    while len(both) < rounds and time.monotonic() - begin < LONGEST_S:
        both.append((a(), b()))
    wall = Pair(a=tuple(x.wall_s for x, _ in both), b=tuple(y.wall_s for _, y in both))
    return wall, Pair(a=tuple(x.cpu_s for x, _ in both), b=tuple(y.cpu_s for _, y in both))
