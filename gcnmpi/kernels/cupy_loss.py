"""Loss and counts of right predictions on a GPU: see ``kernels.cuda_loss``."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.kernels.cuda_loss import BLOCKS, COUNTS, LANES, THREADS
from gcnmpi.kernels.cupy_copies import DeviceNumber

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
        rows, width = logits.shape
        losses, total = cp.empty((_blocks(rows),), np.float64), cp.empty((1,), np.float64)
        of = np.int64(width), self._resident(labels, "i4"), self.dtype.type(scale)
        sizes = np.int64(rows), np.int64(width)
        self._by_blocks(
            "softmax_cross_entropy", rows, *_matrix(logits), *of, *_matrix(grad), losses, *sizes
        )
        self._functions["add_losses"](*_ONE_BLOCK, (losses, total, np.int64(len(losses))))
        return DeviceNumber(total)

    def count_right(self, logits: Array, labels: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """One launch, and one copy."""
        rows, width = logits.shape
        if not rows:
            return np.zeros(COUNTS)
        counts = cp.empty((_blocks(rows), COUNTS), np.int64)
        of = np.int64(width), self._resident(labels, "i4"), self._resident(masks, "u1")
        sizes = np.int64(rows), np.int64(width)
        self._by_blocks("count_right", rows, *_matrix(logits), *of, counts, *sizes)
        return cp.asnumpy(counts).sum(axis=0).astype(np.float64)

    def _by_blocks(self, name: str, rows: int, *arguments: Any) -> None:
        self._functions[name]((_blocks(rows), 1), (THREADS, 1), arguments)


def _blocks(rows: int) -> int:
    return max(1, min(BLOCKS, -(-rows // (THREADS // LANES))))


def _matrix(x: Array) -> tuple[Array, np.int64, np.int64]:
    """A matrix as the CUDA source takes it: where it begins, and its strides."""
    return x, np.int64(x.strides[0] // x.itemsize), np.int64(x.strides[1] // x.itemsize)
