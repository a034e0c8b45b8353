"""Products of a sparse and a dense matrix."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

A_in = TypeVar("A_in", contravariant=True)
S = TypeVar("S")


class SparseProducts(Protocol[A_in, S]):
    """Products with a sparse matrix."""

    def sparse(self, matrix: sp.csr_array) -> S:
        """The kernel's own form of a CSR matrix, with values in its dtype.

        Raises
        ------
        ValueError
            If an index is out of range: products do not look.
        """

    def set_values(self, matrix: S, values: np.ndarray) -> None:
        """Other values for a matrix of :meth:`sparse`; nothing of the size of the matrix is made.

        Parameters
        ----------
        values : (nnz,) array of the kernel's dtype on the host
            In the order of the entries of the CSR matrix.
        """

    def spmm(self, matrix: S, x: A_in, out: A_in, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x; rows of x and out are contiguous."""
