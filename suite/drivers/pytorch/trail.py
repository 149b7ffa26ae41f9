"""What was trained on, in a few bytes: so that data trained on twice, or by two ranks, is told."""

import ctypes
import dataclasses
import functools
import hashlib
import sys
from collections.abc import Mapping

import torch

VALUES = 512
"""Of each tensor, spread over all of it, however large it is: a batch is recognised by them, at next to no cost."""
PLAIN = (str, bytes, int, float, complex)
REMEMBERED = 1 << 17
"""Micro-batches of an epoch; of a longer one, the rest is not compared."""


def marked(micros):
    """The same micro-batches with their fingerprints."""
    for micro in micros:
        yield micro._replace(mark=fingerprint(micro.batch))


def fingerprint(batch):
    """Eight bytes that other batches do not have; None where a part cannot be read: other batches may differ there."""
    digest, read = hashlib.blake2b(digest_size=8), False
    for leaf in _leaves(batch):
        content = _content(leaf)
        if content is None:
            return None
        read = True
        digest.update(content)
    return digest.digest() if read else None


def _leaves(item):
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


def _content(leaf):
    """Bytes that stand for a leaf; None where it does not give any away."""
    if isinstance(leaf, PLAIN) or leaf is None:
        return repr(leaf).encode()
    if "numpy" in sys.modules and isinstance(leaf, sys.modules["numpy"].ndarray):
        if leaf.dtype.kind not in "biuf":
            return repr(leaf.tolist()).encode()
        leaf = torch.as_tensor(leaf if min(leaf.strides, default=0) >= 0 else leaf.copy())
    if not isinstance(leaf, torch.Tensor):
        return None
    try:
        return b"".join(_sample(part) for part in _strided(leaf.detach()))
    except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor that torch itself cannot take apart
        return None


def _strided(tensor):
    """The tensors that hold its numbers: several of a sparse or nested one, none of one without data."""
    if tensor.is_meta:
        raise NotImplementedError("a tensor without data")
    if tensor.is_nested:
        return tensor.unbind()
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.int_repr() if tensor.is_quantized else tensor,)


def _sample(tensor):
    places = _places(tensor.numel())
    if places is not None:
        places = places.to(tensor.device)
        # Of a transposed view, a reshape would copy everything.
        flat = tensor.reshape(-1)[places] if tensor.is_contiguous() else None
        tensor = tensor[torch.unravel_index(places, tensor.shape)] if flat is None else flat
    # On a device, memory that no pointer of ours may touch: a few values are copied.
    values = tensor.cpu().contiguous().resolve_conj().resolve_neg()
    content = ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()) if values.numel() else b""
    return f"{values.dtype} {tuple(values.shape)}".encode() + content


@functools.lru_cache(maxsize=256)
def _places(count):
    """Which of `count` values are looked at; None: all.

    One place by chance in each of equal parts: at equal distances one would see the first column of every row, which
    rows may have in common.
    """
    if count <= VALUES:
        return None
    chance = torch.rand(VALUES, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    return ((torch.arange(VALUES) + chance) * (count / VALUES)).long().clamp_(max=count - 1)


class Trail:
    """The fingerprints of a rank's training, window by window."""

    def __init__(self):
        self._epoch, self._seen = None, set()
        self._start()

    def _start(self):
        self._window, self._repeated, self._any = hashlib.blake2b(digest_size=8), 0, False

    def note(self, micro):
        """One more micro-batch is trained on."""
        if micro.mark is None:
            return
        if micro.epoch != self._epoch:
            self._epoch = micro.epoch
            self._seen.clear()
        self._any = True
        self._window.update(micro.mark)
        self._repeated += micro.mark in self._seen
        if len(self._seen) < REMEMBERED:
            self._seen.add(micro.mark)

    def take(self):
        """`data` and `repeated` of the window that ends; nothing where batches are random ones."""
        told = {"data": self._window.hexdigest(), "repeated": self._repeated} if self._any else {}
        self._start()
        return told
