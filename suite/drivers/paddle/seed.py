"""Random state of a process: seeded for the model, again for each rank's own dropout, kept in checkpoints."""

import random

import numpy as np
import paddle

from suite.drivers.paddle.device import made_states, plain_states


def seed_everything(seed):
    """Seed Python, NumPy and Paddle, on the host and on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    paddle.seed(seed)


def rank_seed(seed, rank):
    """A rank's own seed, far from its neighbours'."""
    return (seed * 1_000_003 + (rank + 1) * 7_368_787) % 2**31


def get_state(device):
    """All generators of this process, as plain values."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [str(name), [int(key) for key in keys], *rest],
        "paddle": plain_states(paddle.get_rng_state(device="cpu")),
        "device": device.rng_state(),
    }


def set_state(state, device):
    """Restore what `get_state` gave."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(tuple(state["numpy"]))
    paddle.set_rng_state(made_states(state["paddle"]), device="cpu")
    device.set_rng_state(state["device"])
