"""Are the ranks one model? Digests of all parameters' bytes, computed and compared on the host.

Neither the collectives under test nor the device's arithmetic take part: only copies to the host and the control group.
"""

import ctypes
import hashlib
import math

import torch


def digest_parameters(model):
    """(hex digest over names and bytes, number of values, float64 sum of each parameter) of all parameters."""
    return digest((name, parameter.detach()) for name, parameter in model.named_parameters())


def digest(tensors):
    """As `digest_parameters`, of (name, tensor) pairs."""
    digest, count, sums = hashlib.sha256(), 0, []
    for name, tensor in tensors:
        values = tensor.cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        size = values.numel() * values.element_size()
        if size:
            digest.update(memoryview((ctypes.c_char * size).from_address(values.data_ptr())))
        count += values.numel()
        sums.append(float(values.sum(dtype=torch.float64)))
    return digest.hexdigest(), count, sums


def compare(model, group):
    """Keys of the `checksum` event: `equal` is true only if all ranks hold the same bytes; null for a rank alone."""
    digest, count, sums = digest_parameters(model)
    everyone = group.gather((digest, sums))
    alone = len(everyone) == 1
    holders = list(range(len(everyone)))
    return {
        "groups": [{"name": "parameters", "holders": holders, "count": count, "digest": digest}],
        "equal": None if alone else all(other == digest for other, _ in everyone),
        "spread": None if alone else spread([sums for _, sums in everyone]),
        "uncovered": count if alone else 0,
    }


def spread(rows):
    """The largest difference between ranks of any parameter's sum; nan where a sum is not finite or missing."""
    if len({len(row) for row in rows}) != 1 or not all(math.isfinite(value) for row in rows for value in row):
        return math.nan
    return max((max(column) - min(column) for column in zip(*rows)), default=0.0)


def largest(spreads):
    """The largest of several; nan where one is."""
    return math.nan if any(math.isnan(value) for value in spreads) else max(spreads)
