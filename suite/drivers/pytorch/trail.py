"""The fingerprint of a batch of tensors; the trail that it leaves is the same in every framework."""

import ctypes
import functools
import sys

import torch

from suite.drivers import fingerprint as batch_fingerprint
from suite.drivers import trail
from suite.drivers.trail import Trail

__all__ = ["Trail", "fingerprint", "marked"]

VALUES = batch_fingerprint.VALUES


def marked(micros):
    """The same micro-batches with their fingerprints."""
    return trail.marked(micros, fingerprint)


def fingerprint(batch):
    """Eight bytes that other batches do not have; None where a part cannot be read: other batches may differ there."""
    return batch_fingerprint.fingerprint(batch, _content)


def _content(leaf):
    """Bytes that stand for an array or tensor; None where it does not give any away."""
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
