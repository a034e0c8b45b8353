"""Masked softmax cross-entropy and accuracies, through the scheme's row operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class SoftmaxCrossEntropy:
    """Mean over the training vertices of −log softmax(z)[label], and its gradient.

    Only the rows of training vertices take part: what is not labelled, or padding, is never
    looked at. The row maximum is subtracted before exponentiating.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
    labels : (rows,) int32
        Class of each vertex of this rank, −1 where it has none.
    mask : (rows,) bool
        Training vertices of this rank; all of them labelled.
    count : int
        Number of training vertices of all ranks.
    """

    def __init__(
        self, scheme: Any, kernel: Any, labels: np.ndarray, mask: np.ndarray, count: int, width: int
    ) -> None:
        self._scheme, self._kernel, self._count = scheme, kernel, count
        rows = np.flatnonzero(mask)
        self._labels = labels[rows].astype(np.int64)
        self._rows = None if len(rows) == len(mask) else rows
        self._logits = kernel.empty_columnwise(len(rows), width)
        self._grad = kernel.empty_columnwise(len(rows), width)

    def __call__(self, logits: Any, grad: Any) -> float:
        """This rank's share of the loss; its gradient goes to ``grad``, zero in other rows.

        Parameters
        ----------
        logits, grad : (rows, classes) arrays
        """
        kernel, scheme = self._kernel, self._scheme
        if not len(self._labels):
            grad.fill(0)
            return 0.0
        if self._rows is None:
            kernel.copy(logits, self._logits)
        else:
            kernel.take_rows(logits, self._rows, self._logits)
        largest = scheme.row_max(self._logits)
        sums = scheme.row_sum(kernel.exp_shifted(self._logits, largest, self._grad))
        picked = scheme.row_pick(self._logits, self._labels)
        loss = kernel.log_sum(sums) + kernel.total(largest) - kernel.total(picked)
        kernel.softmax_backward(self._grad, sums, self._labels, 1 / self._count)
        if self._rows is None:
            kernel.copy(self._grad, grad)
        else:
            grad.fill(0)
            kernel.put_rows(self._grad, self._rows, grad)
        return loss / self._count


def count_correct(
    scheme: Any, logits: Any, labels: np.ndarray, masks: Mapping[str, np.ndarray]
) -> np.ndarray:
    """How many vertices of this rank are predicted right, one number a mask, float64."""
    right = scheme.row_argmax(logits) == labels
    return np.array([np.count_nonzero(right & mask) for mask in masks.values()], np.float64)
