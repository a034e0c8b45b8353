"""A loss that is a mean over single numbers: those that are known of the training vertices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.kernels.interface import Array
from gcnmpi.layout.place import Place
from gcnmpi.nn.program import Product
from gcnmpi.nn.tasks.interface import Made

_AT_ONCE = 1 << 16  # numbers that are looked at at once: they stay in the cache

Entry = Callable[[np.ndarray, np.ndarray, slice], tuple[np.ndarray, np.ndarray]]
"""(z, y, columns) → the loss of each number and its derivative; columns are those of the rank."""


class MeanOfEntries:
    """Mean of a loss of each number, over all that are known; computed on the host.

    No rank needs another one's numbers, so that nothing is sent however columns are cut.

    Parameters
    ----------
    entry : callable
        See :data:`Entry`.
    """

    def __init__(self, made: Made, entry: Entry) -> None:
        block = made.scheme.block(Place(made.k), made.width)
        self._kernel, self._entry, self._columns = made.kernel, entry, block.columns
        self._counts = block.counts_entries
        self._scale = 1 / made.targets.counts["train"]
        labels = made.targets.labels
        known = ~np.isnan(labels) & made.targets.masks["train"][:, np.newaxis]
        self._rows = np.flatnonzero(known.any(axis=1))
        self._known = known[self._rows]
        # What is made of them is as exact as the output at least.
        dtype = np.result_type(labels.dtype, made.kernel.dtype)
        self._labels = np.where(self._known, labels[self._rows], 0).astype(dtype)
        self._step = max(1, _AT_ONCE // max(1, labels.shape[1]))

    def products(self) -> list[Product]:
        """None."""
        return []

    def __call__(self, logits: Array, grad: Array) -> float:
        """See :class:`~gcnmpi.nn.tasks.interface.Loss`."""
        z, out = self._kernel.to_host(logits), self._kernel.to_host(grad)
        out.fill(0)
        loss = 0.0
        for start in range(0, len(self._rows), self._step):
            some = slice(start, start + self._step)
            rows, known = self._rows[some], self._known[some]
            values, slopes = self._entry(z[rows], self._labels[some], self._columns)
            loss += float(np.sum(values, where=known, dtype=np.float64))
            out[rows] = np.where(known, slopes * self._scale, 0)
        if out is not grad:  # a copy of what is on a device
            self._kernel.copy(self._kernel.from_host(out), grad)
        return loss * self._scale if self._counts else 0.0


def sums_of_columns(made: Made, values: np.ndarray) -> np.ndarray:
    """Sums over all known numbers of training vertices, one a column of the whole output.

    Parameters
    ----------
    values : (rows, columns) numbers of this rank
    """
    block = made.scheme.block(Place(made.k), made.width)
    known = ~np.isnan(made.targets.labels) & made.targets.masks["train"][:, np.newaxis]
    sums = np.zeros(made.width)
    if block.counts_entries:
        sums[block.columns] = np.sum(values, axis=0, where=known, dtype=np.float64)
    made.scheme.reduce(sums)
    return sums
