"""Tensors inside nested batches."""

import torch


def map_tensors(function, batch):
    """`function` over every tensor of a nested dict, list or tuple; other values stay as they are."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return type(batch)((key, map_tensors(function, item)) for key, item in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_tensors(function, item) for item in batch)
    return batch
