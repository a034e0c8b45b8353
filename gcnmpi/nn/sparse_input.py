"""Features that are mostly zeros, as the sparse matrix that the first layer multiplies with.

x·W is a product of a sparse matrix with a dense one, and so is xᵀ·g, with the transpose, which is
kept beside it. Dropout decides on stored entries by the hash that decides on those of a dense
matrix: zeros stay zeros, so both have the same values.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.core.timing import Phases
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface import Array, Kernel, Sparse
from partition.graph.graph import index_dtype


class SparseInput:
    """This rank's rows of H⁰, or of what dropout leaves of them.

    Parameters
    ----------
    kernel : kernel
    phases : Phases
        Where the time of the products is counted.
    matrix : (own, width) csr_array
        With numbers of the kernel's dtype.
    summed : slice or None
        Which of the rows this rank sums up for gradients; None: there are no gradients.
    """

    def __init__(
        self, kernel: Kernel, phases: Phases, matrix: sp.csr_array, summed: slice | None
    ) -> None:
        self._kernel, self._phases = kernel, phases
        self._matrix, self._summed = matrix, summed
        if summed is not None:
            first, last, _ = summed.indices(matrix.shape[0])
            part = matrix[summed]
            # Where each entry of the transpose comes from, so that dropout need not sort again.
            numbers = np.arange(part.nnz, dtype=index_dtype(part.nnz))
            transposed = sp.csr_array((numbers, part.indices, part.indptr), part.shape).T.tocsr()
            self._order, self._entries = (
                transposed.data,
                slice(*matrix.indptr[[first, last]].tolist()),
            )
            self._pattern = transposed.indices, transposed.indptr, transposed.shape
        self._fill(matrix.data)

    def combine(self, weight: Array, out: Array, add: bool, epilogue: Epilogue | None) -> None:
        """out = epilogue(x·W), or of the sum of out and that."""
        with self._phases("spmm"):
            self._kernel.spmm_then(self._rows, weight, out, add, epilogue)

    def weight_grad(self, grad: Array, out: Array, sums: Array | None) -> None:
        """out = xᵀ·grad over the rows that are summed up, and the column sums of grad there."""
        assert self._summed is not None, "made without gradients"
        grad = grad[self._summed]
        with self._phases("spmm"):
            self._kernel.spmm(self._transposed, grad, out)
        if sums is not None:
            self._kernel.column_sum(grad, sums)

    def drop_from(self, source: SparseInput, seed: int, epoch: int, keys: Any, p: float) -> None:
        """Become dropout of ``source``, which has the same pattern.

        Parameters
        ----------
        keys : (int, (own,) integers)
            Stream of the dropout, and the global ids of the rows.
        """
        stream, vertices = keys
        matrix, dtype = source._matrix, self._kernel.dtype
        counts = np.diff(matrix.indptr)
        rows = np.repeat(rng.row_keys(seed, epoch, stream, vertices), counts)
        hashes, scratch = np.empty((2, len(rows), 1), np.uint32)
        rng.hash_block(rows, source._column_keys, hashes, scratch)
        kept = hashes[:, 0] >= rng.threshold(p)
        self._fill(matrix.data * kept * dtype.type(1 / (1 - p)))

    def copy(self) -> SparseInput:
        """Another one of the same values."""
        return SparseInput(self._kernel, self._phases, self._matrix, self._summed)

    @cached_property
    def _column_keys(self) -> np.ndarray:
        """What dropout hashes of the column of each entry, the same in every epoch."""
        keys = rng.column_keys(np.arange(self._matrix.shape[1]))
        return keys[self._matrix.indices][:, np.newaxis]

    def _fill(self, values: np.ndarray) -> None:
        matrix, kernel = self._matrix, self._kernel
        own = (values, matrix.indices, matrix.indptr)
        self._rows: Sparse = kernel.sparse(sp.csr_array(own, shape=matrix.shape))
        if self._summed is not None:
            indices, indptr, shape = self._pattern
            transposed = (values[self._entries][self._order], indices, indptr)
            self._transposed: Sparse = kernel.sparse(sp.csr_array(transposed, shape=shape))
