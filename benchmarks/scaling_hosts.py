"""Hosts whose noise is known: what run follows run, base first, deviates from the truth by."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Host:
    """How its runs vary, in standard deviations of a logarithm: 0.01 is 1 %."""

    name: str
    noise: float = 0.01
    """Of each run by itself."""
    parallel: float = 1.0
    """How many times as much the run on many devices has of it as its base."""
    drift: float = 0.0
    """Of what neighbours share: a level that decays by `memory` from run to run."""
    memory: float = 0.0
    walk: float = 0.0
    """What each run adds to a level that never comes back."""
    ramp: float = 0.0
    """What the whole session warms by, from its first run to its last."""
    bursts: bool = False
    """Student's t of three degrees in place of the normal distribution: now and then a run is far off."""

    def deviations(self, runs: int, chance: random.Random) -> list[float]:
        """The logarithms of speed over truth, of base, run, base, run … in the order of time."""
        level, walked, direction = chance.gauss(0, self.drift), 0.0, chance.choice((-1, 1))
        found = []
        for place in range(runs):
            own = self.noise * (self.parallel if place % 2 else 1.0) * self._draw(chance)
            warm = direction * self.ramp * place / max(runs - 1, 1)
            found.append(own + level + walked + warm)
            level = self.memory * level + chance.gauss(0, self.drift * math.sqrt(1 - self.memory**2))
            walked += chance.gauss(0, self.walk)
        return found

    def _draw(self, chance: random.Random) -> float:
        if not self.bursts:
            return chance.gauss(0, 1)
        return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2) / 3)


HOSTS = (
    Host(name="still"),
    Host(name="drifting", drift=0.01, memory=0.8),
    Host(name="wandering", noise=0.005, walk=0.005),
    Host(name="warming", ramp=0.03),
    Host(name="bursting", bursts=True),
    Host(name="noisier in parallel", parallel=2.0),
)
"""1 % of noise a run, or half; beside it 1 % that neighbours share, a level that walks, 3 % of warmth, far misses."""
