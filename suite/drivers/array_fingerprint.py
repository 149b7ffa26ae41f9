"""The fingerprint of a batch of NumPy arrays, or of tensors that show themselves as such."""

from __future__ import annotations

import functools
from typing import Any

import numpy

from suite.drivers import fingerprint

VALUES = fingerprint.VALUES


def of_arrays(batch: Any) -> bytes | None:
    """Eight bytes that other batches do not have; None where a part cannot be read."""
    return fingerprint.fingerprint(batch, _content)


def _content(leaf: Any) -> bytes | None:
    """Bytes that stand for an array; None for what is none."""
    if hasattr(leaf, "numpy"):  # an eager tensor: on the host, this copies nothing
        try:
            leaf = leaf.numpy()
        except (TypeError, RuntimeError):  # of a type that NumPy has not, or one that still wants its gradient
            return None
    if not isinstance(leaf, (numpy.ndarray, numpy.generic)):
        return None
    values = numpy.asarray(leaf)
    if values.dtype.hasobject:
        return repr(values.tolist()).encode()
    places = _places(values.size)
    if places is not None:
        # Of a transposed view, a reshape would copy everything.
        contiguous = values.flags.c_contiguous
        values = values.reshape(-1)[places] if contiguous else values[numpy.unravel_index(places, values.shape)]
    return f"{values.dtype} {values.shape}".encode() + values.tobytes()


@functools.lru_cache(maxsize=256)
def _places(count: int) -> Any:
    """Which of `count` values are looked at; None: all.

    One place by chance in each of equal parts: at equal distances one would see the first column of every row, which
    rows may have in common.
    """
    if count <= VALUES:
        return None
    chance = numpy.random.default_rng(count).random(VALUES)
    places = ((numpy.arange(VALUES) + chance) * (count / VALUES)).astype(numpy.int64)
    return numpy.minimum(places, count - 1)
