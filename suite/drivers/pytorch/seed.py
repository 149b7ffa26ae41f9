"""Random state of a process: seeded for the model, again for each rank's own dropout, kept in checkpoints."""

import random
import sys

import torch


def seed_everything(seed, device):
    """Seed Python, NumPy where it is loaded, torch and the device."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    device.seed(seed)


def rank_seed(seed, rank):
    """A rank's own seed, far from its neighbours'."""
    return (seed * 1_000_003 + (rank + 1) * 7_368_787) % 2**31


def get_state(device):
    """All generators of this process, as plain values and tensors."""
    state = {"python": random.getstate(), "torch": torch.get_rng_state(), "device": device.rng_state()}
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (str(name), [int(key) for key in keys], *rest)
    return state


def set_state(state, device):
    """Restore what `get_state` gave."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    device.set_rng_state(state["device"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(state["numpy"])
