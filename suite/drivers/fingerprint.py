"""A batch recognised by a few bytes, whatever its parts are; each framework says what stands for one of its own."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

VALUES = 512
"""Of each array, spread over all of it, however large it is: a batch is recognised by them, at next to no cost."""
PLAIN = (str, bytes, int, float, complex, type(None))


def fingerprint(batch: Any, content: Callable[[Any], bytes | None]) -> bytes | None:
    """Eight bytes that other batches do not have; None where a part cannot be read: other batches may differ there.

    `content` gives the bytes that stand for a part that is no plain value, or None.
    """
    digest, read = hashlib.blake2b(digest_size=8), False
    for leaf in _leaves(batch):
        found = repr(leaf).encode() if isinstance(leaf, PLAIN) else content(leaf)
        if found is None:
            return None
        read = True
        digest.update(found)
    return digest.digest() if read else None


def _leaves(item: Any) -> Iterator[Any]:
    """What a nested batch is made of."""
    if isinstance(item, Mapping):
        item = item.values()
    elif dataclasses.is_dataclass(item):
        item = [getattr(item, one.name) for one in dataclasses.fields(item)]
    elif not isinstance(item, (list, tuple)):
        yield item
        return
    for value in item:
        yield from _leaves(value)
