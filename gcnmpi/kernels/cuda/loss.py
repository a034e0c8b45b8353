"""Loss and counts of right predictions on a GPU: see ``kernels.cuda_loss``."""

from __future__ import annotations

import functools
from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.kernels.cuda.copies import DeviceNumber
from gcnmpi.kernels.cuda.text.loss import BLOCKS, COUNTS, LANES, THREADS
from gcnmpi.kernels.interface.dense import ENTRY_LOSSES, EntryLoss

Array = Any  # of CuPy
_ONE_BLOCK = (1, 1), (THREADS, 1)


class CupyLoss:
    """What of ``LossOperations`` takes one pass over the logits."""

    dtype: np.dtype
    _functions: Any
    _resident: Any

    def softmax_cross_entropy(
        self, logits: Array, labels: np.ndarray, scale: float, grad: Array
    ) -> DeviceNumber:
        """Two launches, for which nobody waits."""
        right, spread = _plain(logits.shape[1])
        return self.weighted_cross_entropy(logits, labels, right, spread, scale, grad)

    def weighted_cross_entropy(
        self,
        logits: Array,
        labels: np.ndarray,
        right: np.ndarray,
        spread: np.ndarray,
        scale: float,
        grad: Array,
    ) -> DeviceNumber:
        """As many."""
        rows, width = logits.shape
        number = self.dtype.type
        weights = (self._resident(one, self.dtype.str) for one in (right, spread))
        of = np.int64(width), self._resident(labels, "i4"), *weights
        numbers = number(np.sum(spread)), number(scale)
        return self._summed("softmax_cross_entropy", _blocks(rows), logits, (*of, *numbers), grad)

    def entry_losses(
        self, logits: Array, labels: np.ndarray, loss: EntryLoss, scale: float, grad: Array
    ) -> DeviceNumber:
        """As many."""
        number, kind = self.dtype.type, self.dtype.str
        matrices = self._resident(labels, kind), self._resident(loss.weights, kind)
        which = np.int32(ENTRY_LOSSES.index(loss.kind)), number(loss.delta), number(scale)
        blocks = max(1, min(BLOCKS, -(-logits.size // THREADS)))
        return self._summed("entry_losses", blocks, logits, (*matrices, *which), grad)

    def count_right(self, logits: Array, labels: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """One launch, and one copy."""
        rows, width = logits.shape
        if not rows:
            return np.zeros(COUNTS)
        counts = cp.empty((_blocks(rows), COUNTS), np.int64)
        of = np.int64(width), self._resident(labels, "i4"), self._resident(masks, "u1")
        sizes = np.int64(rows), np.int64(width)
        arguments = *_matrix(logits), *of, counts, *sizes
        self._functions["count_right"]((_blocks(rows), 1), (THREADS, 1), arguments)
        return cp.asnumpy(counts).sum(axis=0).astype(np.float64)

    def _summed(
        self, name: str, blocks: int, logits: Array, of: tuple[Any, ...], grad: Array
    ) -> DeviceNumber:
        """The sum of what the blocks of a loss find, which is not waited for."""
        losses, total = cp.empty((blocks,), np.float64), cp.empty((1,), np.float64)
        sizes = np.int64(logits.shape[0]), np.int64(logits.shape[1])
        arguments = *_matrix(logits), *of, *_matrix(grad), losses, *sizes
        self._functions[name]((blocks, 1), (THREADS, 1), arguments)
        self._add_all(losses, total)
        return DeviceNumber(total)

    def _add_all(self, numbers: Array, out: Array) -> None:
        """out = the sum of all numbers, (1,), both in float64."""
        self._functions["add_losses"](*_ONE_BLOCK, (numbers, out, np.int64(numbers.size)))


@functools.cache
def _plain(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of classes, and what labels are smoothed by, where there is neither."""
    return np.ones(width), np.zeros(width)


def _blocks(rows: int) -> int:
    return max(1, min(BLOCKS, -(-rows // (THREADS // LANES))))


def _matrix(x: Array) -> tuple[Array, np.int64, np.int64]:
    """A matrix as the CUDA source takes it: where it begins, and its strides."""
    return x, np.int64(x.strides[0] // x.itemsize), np.int64(x.strides[1] // x.itemsize)
