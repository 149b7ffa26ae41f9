"""Are the ranks one model? Digests of all parameters' bytes, computed on the host and compared by the control group."""

import hashlib
import math

import numpy


def compare(variables, control):
    """Keys of the `checksum` event: `equal` is true only if all ranks hold the same bytes; null for a rank alone."""
    found, count, sums = digest(variables)
    everyone = control.gather([found, sums])
    alone = len(everyone) == 1
    return {
        "groups": [{"name": "parameters", "holders": list(range(len(everyone))), "count": count, "digest": found}],
        "equal": None if alone else all(other == found for other, _ in everyone),
        "spread": None if alone else spread([sums for _, sums in everyone]),
        "uncovered": count if alone else 0,
    }


def digest(variables):
    """(hex digest over names and bytes, number of values, float64 sum of each parameter)."""
    made, count, sums = hashlib.sha256(), 0, []
    for variable in variables:
        values = numpy.ascontiguousarray(variable.numpy())
        made.update(f"{variable.name} {values.dtype} {values.shape}\n".encode())
        made.update(values.tobytes())
        count += values.size
        sums.append(float(values.astype(numpy.float64).sum()))
    return made.hexdigest(), count, sums


def spread(rows):
    """The largest difference between ranks of any parameter's sum; nan where a sum is not finite."""
    if not all(math.isfinite(value) for row in rows for value in row):
        return math.nan
    return max((max(column) - min(column) for column in zip(*rows)), default=0.0)
