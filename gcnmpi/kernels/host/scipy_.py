"""The reference kernel: SciPy's CSR products, one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.host.dense import Array, DenseArithmetic
from gcnmpi.kernels.host.neighbours import Pattern
from gcnmpi.kernels.interface.kernel import KernelOf


@dataclass(frozen=True)
class SparseMatrix:
    """A matrix, or some of its rows: where few have entries, the others are left out."""

    matrix: sp.csr_array
    rows: np.ndarray | slice


class SciPyKernel(DenseArithmetic[SparseMatrix]):
    """Sparse products by SciPy: simple and slow; the other kernels are compared with it."""

    name = "scipy"

    def sparse(self, matrix: sp.csr_array) -> SparseMatrix:
        matrix.check_format()
        rows = np.flatnonzero(np.diff(matrix.indptr))
        if 2 * len(rows) < matrix.shape[0]:
            # Many tiles of one block row take the memory and the time of their entries only.
            return SparseMatrix(matrix[rows].astype(self.dtype), rows)
        return SparseMatrix(matrix.astype(self.dtype), slice(None))

    def set_values(self, matrix: SparseMatrix, values: np.ndarray) -> None:
        # Rows that are left out have no entries.
        np.copyto(matrix.matrix.data, values)

    def spmm(self, matrix: SparseMatrix, x: Array, out: Array, accumulate: bool = False) -> None:
        if not accumulate:
            out.fill(0)
        out[matrix.rows] += matrix.matrix @ x


if TYPE_CHECKING:  # mypy says what differs
    _kernel: KernelOf[np.ndarray, SparseMatrix, Pattern] = SciPyKernel(np.float32, 1)
