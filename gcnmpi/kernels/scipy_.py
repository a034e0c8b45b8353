"""The reference kernel: SciPy's CSR products, one thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.dense import Array, DenseArithmetic


@dataclass(frozen=True)
class SparseMatrix:
    """A matrix, or some of its rows: where few have entries, the others are left out."""

    matrix: sp.csr_array
    rows: np.ndarray | slice


class SciPyKernel(DenseArithmetic):
    """Sparse products by SciPy: simple, slow, and what the others are held against."""

    name = "scipy"

    def sparse(self, matrix: sp.csr_array) -> SparseMatrix:
        """The matrix with values in the kernel's dtype; ValueError if an index is out of range."""
        matrix.check_format()
        rows = np.flatnonzero(np.diff(matrix.indptr))
        if 2 * len(rows) < matrix.shape[0]:
            # Many tiles of one block row take the memory and the time of their entries only.
            return SparseMatrix(matrix[rows].astype(self.dtype), rows)
        return SparseMatrix(matrix.astype(self.dtype), slice(None))

    def spmm(self, matrix: SparseMatrix, x: Array, out: Array, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x."""
        if not accumulate:
            out.fill(0)
        out[matrix.rows] += matrix.matrix @ x
