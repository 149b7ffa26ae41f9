"""Tensors inside nested batches."""

import sys

import torch


def map_tensors(function, batch, kind=torch.Tensor):
    """`function` over every tensor of a nested dict, list or tuple; other values stay as they are."""
    if isinstance(batch, kind):
        return function(batch)
    if isinstance(batch, dict):
        return type(batch)((key, map_tensors(function, item, kind)) for key, item in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item, kind) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_tensors(function, item, kind) for item in batch)
    return batch


def from_arrays(batch):
    """The nested batch with its NumPy arrays as tensors that share their memory."""
    if "numpy" not in sys.modules:
        return batch
    return map_tensors(torch.from_numpy, batch, sys.modules["numpy"].ndarray)
