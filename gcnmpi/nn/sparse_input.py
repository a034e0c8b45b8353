"""Features that are mostly zeros, as the sparse matrix that the first layer multiplies with.

x·W is a product of a sparse matrix with a dense one, and so is xᵀ·g, with the transpose, which is
kept beside it. Dropout decides on stored entries by the hash that decides on those of a dense
matrix: zeros stay zeros, so both have the same values.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.core.timing import Phases
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array, EntryDropout, Kernel, Sparse
from gcnmpi.kernels.rows import entry_rows
from partition.graph.graph import chunks, index_dtype

AT_ONCE = 1 << 14  # entries that dropout decides on at once: what that takes stays in the cache


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
        self._turned = None if summed is None else _Turned.of(matrix, summed)
        self._give()

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

    @property
    def bytes(self) -> int:
        """Memory that the matrix takes, without its transpose."""
        matrix = self._matrix
        return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)

    def rows(
        self, chosen: np.ndarray, below: tuple[SparseInput, np.ndarray] | None = None
    ) -> SparseInput:
        """Some of the rows (local numbers), all of which are summed up for gradients.

        Below them, where given, some of another one's.
        """
        matrix = self._matrix[chosen]
        if below is not None:
            matrix = sp.vstack((matrix, below[0]._matrix[below[1]]), format="csr")
        return SparseInput(self._kernel, self._phases, matrix, slice(None))

    def copy(self) -> SparseInput:
        """Another one with values of its own, for dropout to write; the pattern is shared.

        Where a device writes them, those on the host stay as they are.
        """
        other, matrix = copy.copy(self), self._matrix
        pattern = matrix.indices, matrix.indptr
        other._matrix = sp.csr_array((matrix.data.copy(), *pattern), shape=matrix.shape)
        if self._turned is not None:
            other._turned = replace(self._turned, values=self._turned.values.copy())
        other._give()
        return other

    def drop_from(
        self, source: SparseInput, seed: int, epoch: int, keys: tuple[int, np.ndarray], p: float
    ) -> None:
        """Become dropout of ``source``, of which this is a copy. Nothing is made that has its size.

        The keys are the stream of the dropout, and the global ids of the rows, (own,).
        """
        stream, vertices = keys
        row_keys = self._kernel.row_keys(seed, epoch, stream, vertices)
        if self._kernel.drop_entries is None:
            self._drop_on_host(source._matrix.data, row_keys, p)
            return
        columns = self._column_keys
        values, rows = (source._rows, self._rows), self._row_of_entries
        self._kernel.drop_entries(EntryDropout(*values, rows, row_keys, columns, p, False))
        if self._turned is not None:
            values, rows = (source._transposed, self._transposed), self._row_of_turned
            summed = row_keys[self._summed]
            self._kernel.drop_entries(EntryDropout(*values, rows, summed, columns, p, True))

    def _drop_on_host(self, given: np.ndarray, row_keys: Any, p: float) -> None:
        matrix, out, column_keys = self._matrix, self._matrix.data, self._column_keys
        scale, least = self._kernel.dtype.type(1 / (1 - p)), rng.threshold(p)
        for first, last in chunks(matrix.indptr, AT_ONCE):
            counts = np.diff(matrix.indptr[first : last + 1])
            some = slice(*matrix.indptr[[first, last]].tolist())
            rows = np.repeat(row_keys[first:last], counts)
            hashes, scratch = np.empty((2, len(rows), 1), np.uint32)
            columns = column_keys[matrix.indices[some], np.newaxis]
            rng.hash_block(rows, columns, hashes, scratch)
            np.multiply(given[some], hashes[:, 0] >= least, out=out[some])
            out[some] *= scale
        self._kernel.set_values(self._rows, out)
        if self._turned is not None:
            self._turned.fill(out)
            self._kernel.set_values(self._transposed, self._turned.values)

    @cached_property
    def _column_keys(self) -> Any:
        """The key of each column, which dropout hashes: the same in every epoch."""
        keys = rng.column_keys(np.arange(self._matrix.shape[1]))
        return self._kernel.resident(keys, np.uint32)

    @cached_property
    def _row_of_entries(self) -> Array:
        return self._kernel.resident(entry_rows(self._matrix.indptr), np.int32)

    @cached_property
    def _row_of_turned(self) -> Array:
        """The row of each entry of the transpose."""
        assert self._turned is not None
        return self._kernel.resident(entry_rows(self._turned.indptr), np.int32)

    def _give(self) -> None:
        """Make the kernel's own matrices."""
        self._rows: Sparse = self._kernel.sparse(self._matrix)
        if self._turned is not None:
            self._transposed: Sparse = self._kernel.sparse(self._turned.matrix())


@dataclass(frozen=True)
class _Turned:
    """The transpose of the rows that are summed up, and where its entries come from."""

    # (entries,) array: in the order of the transpose; ``indices``, ``indptr`` and ``shape`` are of
    # its pattern
    values: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]
    entries: slice  # which of the entries of all rows they are
    order: np.ndarray  # (entries,) integers: which of those each is: so dropout need not sort again

    @classmethod
    def of(cls, matrix: sp.csr_array, summed: slice) -> _Turned:
        first, last, _ = summed.indices(matrix.shape[0])
        part, entries = matrix[summed], slice(*matrix.indptr[[first, last]].tolist())
        numbers = np.arange(part.nnz, dtype=index_dtype(part.nnz))
        turned = sp.csr_array((numbers, part.indices, part.indptr), part.shape).T.tocsr()
        values = matrix.data[entries][turned.data]
        return cls(values, turned.indices, turned.indptr, turned.shape, entries, turned.data)

    def matrix(self) -> sp.csr_array:
        return sp.csr_array((self.values, self.indices, self.indptr), shape=self.shape)

    def fill(self, values: np.ndarray) -> None:
        """Take the values from those of all rows."""
        given = values[self.entries]
        for start in range(0, len(self.order), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            self.values[some] = given[self.order[some]]
