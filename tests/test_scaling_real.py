"""Real gates: the suite trains at a stated pace on a host that drifts, and its intervals hold the stated speedup."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scaling_real import checkout, real_gate, true_speedup
from benchmarks.scaling_sim import interval
from suite.errors import UsageProblem

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

GATES = 12
MOST_MISSED = 3
"""Of 12 intervals of 95 % more miss once in 400 times."""
LEAST_MEASURED = 8
"""A host that is too busy voids a gate, and says so."""


def test_real_gates_hold_the_stated_speedup(tmp_path: Path) -> None:
    truth = true_speedup("1x2")
    root = checkout(tmp_path / "checkout", vendor="cpu", threshold=truth)
    ends, void = [], []
    for seed in range(1, GATES + 1):
        session = tmp_path / f"s{seed}"
        try:
            ends.append(interval(real_gate(root, session, vendor="cpu", topology="1x2", repeat=3, seed=seed)))
        except UsageProblem as problem:
            void.append(str(problem))
    assert len(ends) >= LEAST_MEASURED, void
    assert all("invalid_measurement" in why or "no_steady_state" in why for why in void), void
    assert sum(not low <= truth <= high for low, high in ends) <= MOST_MISSED, ends
