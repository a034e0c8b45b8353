"""Loss and counts of right predictions on a GPU: see ``kernels.cuda_loss``."""

from __future__ import annotations

import functools
from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.kernels.cuda.copies import DeviceNumber
from gcnmpi.kernels.cuda.text.loss import BLOCKS, COUNTS, LANES, THREADS
from gcnmpi.kernels.interface.dense import ENTRY_LOSSES, ClassLoss, EntryLoss

Array = Any  # of CuPy
_ONE_BLOCK = (1, 1), (THREADS, 1)


class CupyLoss:
    """What of ``LossOperations`` takes one pass over the logits."""

    _start: Any

    def softmax_cross_entropy(
        self, logits: Array, labels: np.ndarray, scale: float, grad: Array
    ) -> DeviceNumber:
        """Two launches, for which nobody waits."""
        loss = ClassLoss(labels, *_plain(logits.shape[1]), 0.0)
        return self.weighted_cross_entropy(logits, loss, scale, grad)

    def weighted_cross_entropy(
        self, logits: Array, loss: ClassLoss[Array], scale: float, grad: Array
    ) -> DeviceNumber:
        """Two launches."""
        factors = loss.right, loss.spread, loss.total
        of = logits, logits.shape[1], loss.labels, *factors, scale
        return self._summed("softmax_cross_entropy", _blocks(len(logits)), of, grad)

    def entry_losses(
        self, logits: Array, labels: np.ndarray, loss: EntryLoss, scale: float, grad: Array
    ) -> DeviceNumber:
        """As many."""
        of = logits, labels, loss.weights, ENTRY_LOSSES.index(loss.kind), loss.delta, scale
        blocks = max(1, min(BLOCKS, -(-logits.size // THREADS)))
        return self._summed("entry_losses", blocks, of, grad)

    def count_right(self, logits: Array, labels: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """One launch, and one copy."""
        rows, width = logits.shape
        if not rows:
            return np.zeros(COUNTS)
        counts = cp.empty((_blocks(rows), COUNTS), np.int64)
        of = logits, width, labels, masks, counts, rows, width
        self._start("count_right", (_blocks(rows), 1), (THREADS, 1), *of)
        return cp.asnumpy(counts).sum(axis=0).astype(np.float64)

    def _summed(self, name: str, blocks: int, of: tuple[Any, ...], grad: Array) -> DeviceNumber:
        """The sum of what the blocks of a loss find, which is not waited for."""
        losses, total = cp.empty((blocks,), np.float64), cp.empty((1,), np.float64)
        self._start(name, (blocks, 1), (THREADS, 1), *of, grad, losses, *grad.shape)
        self._add_all(losses, total)
        return DeviceNumber(total)

    def _add_all(self, numbers: Array, out: Array) -> None:
        """out = the sum of all numbers, (1,), both in float64."""
        self._start("add_losses", *_ONE_BLOCK, numbers, out, numbers.size)


@functools.cache
def _plain(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of classes, and what labels are smoothed by, where there is neither."""
    return np.ones(width), np.zeros(width)


def _blocks(rows: int) -> int:
    return max(1, min(BLOCKS, -(-rows // (THREADS // LANES))))
