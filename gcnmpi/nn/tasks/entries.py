"""A loss that is a mean over single numbers: those that are known of the training vertices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.interface.dense import EntryLoss
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.nn.tasks.interface import LossInputs
from gcnmpi.schemes.operations import Product

_AT_ONCE = 1 << 16  # numbers that are looked at at once: they stay in the cache

Entry = Callable[[np.ndarray, np.ndarray, slice], tuple[np.ndarray, np.ndarray]]
"""(z, y, columns) → the loss of each number and its derivative; columns are those of the rank."""
Known = Callable[[slice], EntryLoss]
"""columns → the same loss, as kernels know it."""


class MeanOfEntries:
    """Mean of a loss of each number, over all that are known.

    No rank needs another one's numbers, so that nothing is sent however columns are cut. Computed
    on the host, unless the kernel has an operation for it and knows the loss. With a smoothing ε,
    y·(1 − ε) + ε/2 takes the place of a label y.
    """

    def __init__(
        self,
        inputs: LossInputs,
        entry: Entry,
        of_kernel: Known | None = None,
        smoothing: float = 0.0,
    ) -> None:
        block = inputs.scheme.block(inputs.place, inputs.width)
        self._kernel, self._entry, self._columns = inputs.kernel, entry, block.columns
        self._counts = block.counts_entries
        self._scale = 1 / inputs.targets.counts["train"]
        labels = inputs.targets.labels
        known = ~np.isnan(labels) & inputs.targets.masks["train"][:, np.newaxis]
        # The losses are at least as exact as the output.
        dtype = np.result_type(labels.dtype, inputs.kernel.dtype)

        def smoothed(some: np.ndarray) -> np.ndarray:
            some = some.astype(dtype)
            return some * (1 - smoothing) + smoothing / 2 if smoothing else some

        self._one_pass = inputs.kernel.entry_losses if of_kernel is not None else None
        if of_kernel is not None and self._one_pass is not None:
            kernel, loss = inputs.kernel, of_kernel(block.columns)
            self._loss = replace(loss, weights=kernel.resident(loss.weights, kernel.dtype))
            labels = smoothed(np.where(known, labels, np.nan))
            self._labels = kernel.resident(labels.astype(kernel.dtype), kernel.dtype)
            return
        # None: something is known of every row, so that none has to be picked out.
        self._rows, some = None, known.any(axis=1)
        self._others = np.flatnonzero(~some)
        if len(self._others):
            self._rows = np.flatnonzero(some)
            known, labels = known[self._rows], labels[self._rows]
        self._known, self._labels = known, smoothed(np.where(known, labels, 0))
        self._step = max(1, _AT_ONCE // max(1, labels.shape[1]))

    def products(self) -> list[Product]:
        """No row operation is needed: numbers are judged one by one."""
        return []

    def __call__(self, logits: Array, grad: Array) -> Number:
        """This rank's share of the loss; its gradient goes to ``grad``."""
        loss: Number
        if self._one_pass is not None:
            loss = self._one_pass(logits, self._labels, self._loss, self._scale, grad)
        else:
            loss = self._on_the_host(logits, grad)
        return loss * self._scale if self._counts else 0.0

    def _on_the_host(self, logits: Array, grad: Array) -> float:
        z, out = self._kernel.to_host(logits), self._kernel.to_host(grad)
        loss = 0.0
        for start in range(0, len(self._known), self._step):
            some = slice(start, start + self._step)
            rows, known = some if self._rows is None else self._rows[some], self._known[some]
            values, slopes = self._entry(z[rows], self._labels[some], self._columns)
            loss += float(np.sum(values, where=known, dtype=np.float64))
            out[rows] = np.where(known, slopes * self._scale, 0)
        out[self._others] = 0
        if out is not grad:  # a copy of what is on a device
            self._kernel.copy(self._kernel.from_host(out), grad)
        return loss


def sums_of_columns(inputs: LossInputs, values: np.ndarray) -> np.ndarray:
    """Sums over all known numbers of training vertices, one a column of the whole output."""
    block = inputs.scheme.block(inputs.place, inputs.width)
    known = ~np.isnan(inputs.targets.labels) & inputs.targets.masks["train"][:, np.newaxis]
    sums = np.zeros(inputs.width)
    if block.counts_entries:
        sums[block.columns] = np.sum(values, axis=0, where=known, dtype=np.float64)
    inputs.scheme.reduce(sums)
    return sums
