"""Running statistics: each rank's own while it trains, rank 0's before an evaluation."""

import base64

import numpy


def share(variables, control):
    """Give every rank rank 0's values, over the control group."""
    if control.world_size == 1 or not variables:
        return
    mine = [_packed(each.numpy()) for each in variables] if control.rank == 0 else None
    for variable, values in zip(variables, control.gather(mine)[0]):
        if control.rank:
            variable.assign(_unpacked(values, variable.numpy()))


def _packed(values):
    return base64.b64encode(numpy.ascontiguousarray(values).tobytes()).decode()


def _unpacked(text, like):
    return numpy.frombuffer(base64.b64decode(text), dtype=like.dtype).reshape(like.shape)
