"""Commands timed side by side, A B A B …: absolute times of a noisy host mean little, their ratio does."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Wall seconds of two commands that took turns."""

    a_s: tuple[float, ...]
    b_s: tuple[float, ...]

    def line(self, a: str, b: str) -> str:
        """One printed line: medians, difference, ratio, and the spread of the ratios of neighbours."""
        mean_a, mean_b = statistics.median(self.a_s), statistics.median(self.b_s)
        ratios = sorted(x / y for x, y in zip(self.a_s, self.b_s))
        return (
            f"{a}: {mean_a:.2f} s   {b}: {mean_b:.2f} s   difference {mean_a - mean_b:+.2f} s   "
            f"ratio {mean_a / mean_b:.3f} (pairs {ratios[0]:.3f} to {ratios[-1]:.3f}, n={len(ratios)})"
        )


def timed(argv: Sequence[str], *, env: dict[str, str] | None = None, timeout_s: float = 900) -> float:
    """Wall seconds of one command that must succeed."""
    start = time.monotonic()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout_s)
    elapsed = time.monotonic() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} left with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return elapsed


def side_by_side(a: Callable[[], float], b: Callable[[], float], rounds: int) -> Pair:
    """Run A and B in turns, `rounds` times each."""
    both = [(a(), b()) for _ in range(rounds)]
    return Pair(a_s=tuple(x for x, _ in both), b_s=tuple(y for _, y in both))
