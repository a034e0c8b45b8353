"""The reference kernel: SciPy's CSR products, one thread."""

from __future__ import annotations

import scipy.sparse as sp

from gcnmpi.kernels.dense import Array, DenseArithmetic


class SciPyKernel(DenseArithmetic):
    """Sparse products by SciPy: simple, slow, and what the others are held against."""

    name = "scipy"

    def sparse(self, matrix: sp.csr_array) -> sp.csr_array:
        """The matrix with values in the kernel's dtype."""
        return matrix.astype(self.dtype)

    def spmm(self, matrix: sp.csr_array, x: Array, out: Array, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x."""
        if accumulate:
            out += matrix @ x
        else:
            out[...] = matrix @ x
