"""What was trained on, in a few bytes: so that data trained on twice, or by two ranks, is told."""

import ctypes
import hashlib

import torch

from suite.drivers.pytorch.tensors import map_tensors

VALUES = 512
"""Of each tensor, evenly spread, however large it is: a batch is recognised by them, at next to no cost."""
REMEMBERED = 1 << 17
"""Micro-batches of an epoch; of a longer one, the rest is not compared."""


def marked(micros):
    """The same micro-batches with their fingerprints."""
    for micro in micros:
        yield micro._replace(mark=fingerprint(micro.batch))


def fingerprint(batch):
    """Eight bytes that other batches do not have."""
    digest = hashlib.blake2b(digest_size=8)
    map_tensors(lambda tensor: digest.update(_sample(tensor)), batch)
    return digest.digest()


def _sample(tensor):
    stride = max(tensor.numel() // VALUES, 1)
    if tensor.is_contiguous():
        values = tensor.reshape(-1)[::stride].contiguous()
    else:  # of a transposed view, a reshape would copy everything
        values = tensor[torch.unravel_index(torch.arange(0, tensor.numel(), stride), tensor.shape)].contiguous()
    return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())


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
