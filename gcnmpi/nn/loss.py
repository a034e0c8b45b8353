"""Masked softmax cross-entropy and accuracies, through the scheme's row operations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gcnmpi.core.arrays import Number
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place
from gcnmpi.nn.tasks.interface import LossInputs
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import Operation, Product


class SoftmaxCrossEntropy:
    """Mean over the training vertices of −log softmax(z)[label], and its gradient.

    Only the rows of training vertices take part: what is not labelled, or padding, is never
    looked at. The row maximum is subtracted before exponentiating.
    """

    def __init__(self, inputs: LossInputs) -> None:
        scheme, kernel, width = inputs.scheme, inputs.kernel, inputs.width
        labels, mask = inputs.targets.labels, inputs.targets.masks["train"]
        self._scheme, self._kernel, self._k = scheme, kernel, inputs.place.layer
        self._count, self._width = inputs.targets.counts["train"], width
        block = scheme.block(inputs.place, width)
        self._counts_rows = block.counts_rows
        self._examples = int(np.count_nonzero(mask))
        self._one_pass = kernel.softmax_cross_entropy if scheme.whole_rows else None
        if self._one_pass is not None:
            labels = np.where(mask, labels, -1).astype(np.int32)
            self._labels = kernel.resident(labels, np.int32)
            return
        rows = np.flatnonzero(mask)
        labels = labels[rows].astype(np.int64)
        self._labels = kernel.resident(labels, np.int64)
        self._rows = None if len(rows) == len(mask) else kernel.resident(rows, np.int64)
        # Where the label's column is on this rank.
        start, stop = block.columns.start, block.columns.stop
        hits = np.flatnonzero((labels >= start) & (labels < stop))
        self._hits = kernel.resident(hits, np.int64)
        self._hit_columns = kernel.resident(labels[hits] - start, np.int64)
        self._logits = kernel.empty_columnwise(len(rows), stop - start)
        self._grad = kernel.empty_columnwise(len(rows), stop - start)

    def products(self) -> list[Product]:
        """The scheme's row operations of one call, for the prediction of their volume."""
        return loss_products(self._k, self._examples)

    def __call__(self, logits: Array, grad: Array) -> Number:
        """This rank's share of the loss; its gradient goes to ``grad``, zero in other rows.

        Both arrays are (rows, classes), or have the columns of this rank.
        """
        if not self._examples:  # nor has any rank that shares these rows
            grad.fill(0)
            return 0.0
        scale = 1 / self._count
        loss: Number
        if self._one_pass is not None:
            loss = self._one_pass(logits, self._labels, scale, grad)
        else:
            loss = self._in_passes(logits, scale, grad)
        return loss * scale if self._counts_rows else 0.0

    def _in_passes(self, logits: Array, scale: float, grad: Array) -> float:
        """Where columns are cut over ranks, or the kernel cannot do it in one pass."""
        kernel, scheme, k = self._kernel, self._scheme, self._k
        if self._rows is None:
            kernel.copy(logits, self._logits)
        else:
            kernel.take_rows(logits, self._rows, self._logits)
        largest = scheme.row_max(k, self._logits)
        sums = scheme.row_sum(k, kernel.exp_shifted(self._logits, largest, self._grad))
        picked = scheme.row_pick(k, self._logits, self._labels, self._width)
        largest -= picked  # row by row: the total of either could be too large to differ
        loss = kernel.log_sum(sums) + kernel.total(largest)
        kernel.softmax_backward(self._grad, sums, self._hits, self._hit_columns, scale)
        if self._rows is None:
            kernel.copy(self._grad, grad)
        else:
            grad.fill(0)
            kernel.put_rows(self._grad, self._rows, grad)
        return loss


def loss_products(k: int, rows: int) -> list[Product]:
    """The scheme's row operations of the loss on so many training vertices of a rank."""
    names = (Operation.ROW_MAX, Operation.ROW_SUM, Operation.ROW_PICK) if rows else ()
    return [(name, k, rows) for name in names]


class RightPredictions:
    """How many rows of this rank are predicted right, one number a mask, float64.

    ``place``, ``width``: where the output is, number of classes. ``labels``, (rows,) int32: −1
    where there is none; no mask has those.
    """

    def __init__(
        self,
        scheme: Scheme,
        kernel: Kernel,
        place: Place,
        width: int,
        labels: np.ndarray,
        masks: Mapping,
    ) -> None:
        self._scheme, self._k, self._width = scheme, place.layer, width
        counts = scheme.block(place, width).counts_rows
        self._labels, self._masks = labels, [mask & counts for mask in masks.values()]
        self._on_device = kernel.count_right if scheme.whole_rows else None
        # A bit a mask, for the device, which keeps them.
        bits = np.zeros(len(labels), np.uint8)
        for number, mask in enumerate(self._masks):
            bits |= mask.astype(np.uint8) << np.uint8(number)
        if self._on_device is not None:
            kept = kernel.resident(labels, np.int32), kernel.resident(bits, np.uint8)
            self._labels, self._bits = kept

    def __call__(self, logits: Array) -> np.ndarray:
        """Of the logits of a pass."""
        if self._on_device is not None:
            return self._on_device(logits, self._labels, self._bits)[: len(self._masks)]
        right = self._scheme.row_argmax(self._k, logits, self._width) == self._labels
        return np.array([np.count_nonzero(right & mask) for mask in self._masks], np.float64)
