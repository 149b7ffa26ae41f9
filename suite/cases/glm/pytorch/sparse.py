"""Compressed sparse rows in HDF5, as the package h5sparse lays them out: a group of `data`, `indices` and `indptr`."""

from __future__ import annotations

import h5py
import numpy as np

from suite.drivers.events import RunProblem


class SparseRows:
    """One matrix of a file, read a slab of dense rows at a time."""

    def __init__(self, file: h5py.File, name: str) -> None:
        if name not in file:
            have = ", ".join(file) or "nothing"
            raise RunProblem(f"{file.filename} has no {name!r} (have: {have}): it is not GLM's layout of ReCoRD")
        self._group = file[name]
        shape = self._group.attrs.get("h5sparse_shape", self._group.attrs.get("shape"))
        if shape is None or "indptr" not in self._group or len(self._group["indptr"]) != shape[0] + 1:
            raise RunProblem(f"{file.filename}: {name!r} is not a matrix of compressed sparse rows")
        self._indptr = self._group["indptr"][:]
        self.shape = (int(shape[0]), int(shape[1]))

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Rows `start:stop`, dense, int64."""
        bounds = self._indptr[rows.start : rows.stop + 1]
        span = slice(int(bounds[0]), int(bounds[-1]))
        dense = np.zeros((len(bounds) - 1, self.shape[1]), dtype=np.int64)
        row = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        dense[row, self._group["indices"][span]] = self._group["data"][span]
        return dense

    def all(self) -> np.ndarray:
        """The whole matrix, dense: for the small ones."""
        return self[slice(0, self.shape[0])]


class SparseWriter:
    """Appends dense slabs to one matrix; `close` makes it readable."""

    def __init__(self, file: h5py.File, name: str, columns: int) -> None:
        self._group = file.create_group(name)
        self._columns = columns
        self._counts = [np.zeros(1, dtype=np.int64)]
        for part in ("data", "indices"):
            self._group.create_dataset(part, (0,), np.int32, maxshape=(None,), chunks=True, compression="gzip")

    def append(self, slab: np.ndarray) -> None:
        """More rows, [rows, columns]."""
        row, column = np.nonzero(slab)
        self._counts.append(np.bincount(row, minlength=len(slab)))
        for part, values in (("data", slab[row, column]), ("indices", column)):
            dataset = self._group[part]
            old = len(dataset)
            dataset.resize((old + len(values),))
            dataset[old:] = values

    def close(self) -> None:
        """Write what only the end knows: where each row begins, and the shape."""
        indptr = np.cumsum(np.concatenate(self._counts))
        self._group.create_dataset("indptr", data=indptr)
        self._group.attrs["h5sparse_format"] = "csr"
        self._group.attrs["h5sparse_shape"] = (len(indptr) - 1, self._columns)
