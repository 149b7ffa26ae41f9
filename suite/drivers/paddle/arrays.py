"""Arrays inside nested batches."""

import numpy as np


def map_arrays(function, batch):
    """`function` over every NumPy array of a nested dict, list or tuple; other values stay as they are."""
    if isinstance(batch, np.ndarray):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_arrays(function, item) for key, item in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_arrays(function, item) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_arrays(function, item) for item in batch)
    return batch
