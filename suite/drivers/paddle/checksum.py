"""Are the ranks one model? Digests of all parameters' bytes, computed and compared on the host.

Neither the collectives under test nor the device's arithmetic take part: only copies to the host and the control group.
"""

import hashlib
import math

import numpy as np

from suite.drivers.paddle.weights import weights


def digest_parameters(model):
    """(hex digest over names and bytes, number of values, float64 sum of each parameter) of all parameters."""
    digest, count, sums = hashlib.sha256(), 0, []
    for name, parameter in weights(model).items():
        values = np.ascontiguousarray(parameter.numpy())
        digest.update(f"{name} {values.dtype} {values.shape}\n".encode())
        digest.update(values.tobytes())
        count += values.size
        sums.append(float(values.sum(dtype=np.float64)))
    return digest.hexdigest(), count, sums


def compare(model, group):
    """Keys of the `checksum` event: `equal` is true only if all ranks hold the same bytes; null for a rank alone."""
    digest, count, sums = digest_parameters(model)
    everyone = group.gather([digest, [value.hex() for value in sums]])
    alone = len(everyone) == 1
    holders = list(range(len(everyone)))
    return {
        "groups": [{"name": "parameters", "holders": holders, "count": count, "digest": digest}],
        "equal": None if alone else all(other == digest for other, _ in everyone),
        "spread": None if alone else spread([[float.fromhex(value) for value in row] for _, row in everyone]),
        "uncovered": count if alone else 0,
    }


def spread(rows):
    """The largest difference between ranks of any parameter's sum; nan where a sum is not finite or missing."""
    if len({len(row) for row in rows}) != 1 or not all(math.isfinite(value) for row in rows for value in row):
        return math.nan
    return max((max(column) - min(column) for column in zip(*rows)), default=0.0)
