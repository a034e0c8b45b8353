"""Products of a sparse and a dense matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

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

    @property
    def drop_entries(
        self,
    ) -> Callable[[S, S, np.ndarray, Any, np.ndarray, float, bool], None] | None:
        """Dropout of the values of a matrix, for another one of its pattern; None: on the host.

        From the matrix, the other one, the row of each entry (nnz,) int32, keys of rows and columns
        as in ``dropout``, p, and whether both are transposed: then the keys of rows are those of
        their columns, and the others those of their rows.
        """

    def spmm(self, matrix: S, x: A_in, out: A_in, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x; rows of x and out are contiguous."""
