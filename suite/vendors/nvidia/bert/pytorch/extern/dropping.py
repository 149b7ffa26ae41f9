"""How the kernels drop: by a comparison of random bits, and by a scale of what is kept."""

import torch

BITS = 16
"""Random ones to a decision, so its probability is exact to 2**-17."""


def threshold(dropout: float) -> int:
    """Random numbers below it drop."""
    return round(dropout * 2**BITS)


def scale(dropout: float) -> float:
    """Of what is kept."""
    return 2**BITS / (2**BITS - threshold(dropout))


def seed(dropout: float, device: torch.device) -> torch.Tensor:
    """[1] of int64, from the generator of the device; empty where nothing is dropped."""
    return torch.randint(2**62, (1 if dropout > 0 else 0,), device=device)
