"""How far a run has come: the cursor that checkpoints keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Progress:
    """The place of one rank in the training. Equal on all ranks at a step boundary, but for the cursor in the data."""

    step: int = 0
    """Optimizer steps done."""
    samples: int = 0
    """Samples trained by all ranks, exact at the end of each window."""
    epoch: int = 1
    micro: int = 0
    """Micro-batches of `epoch` that this rank has used."""
    next_eval: int = 0
    """Global samples at which the next evaluation is due."""
    active_s: float = 0.0
    """Seconds since run_start, summed over the segments before this one."""
    segment: int = 1

    def state(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
