"""Where the entries of a sparse matrix are, apart from their values: one pattern, many values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition.graph.aggregation import from_coordinates
from partition.graph.graph import index_dtype


@dataclass(frozen=True)
class EntryPattern:
    """A pattern in CSR form, made of coordinates in any order.

    >>> pattern = EntryPattern.of(np.array([1, 0, 1]), np.array([2, 1, 0]), (2, 3))
    >>> pattern.order.tolist()
    [1, 2, 0]
    >>> pattern.matrix(np.array([10.0, 20.0, 30.0])).toarray().tolist()
    [[0.0, 20.0, 0.0], [30.0, 0.0, 10.0]]

    Attributes
    ----------
    indptr, indices : (rows + 1,) and (nnz,) integers
    order : (nnz,) integers
        Which of the coordinates each entry is: the way from entries to the arcs that they come of.
    shape : (int, int)
    """

    indptr: np.ndarray
    indices: np.ndarray
    order: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> EntryPattern:
        """The pattern of these coordinates, each of which occurs once."""
        numbers = np.arange(len(row), dtype=index_dtype(len(row)))
        matrix = from_coordinates(row, column, numbers, shape)
        return cls(matrix.indptr, matrix.indices, matrix.data, shape)

    def matrix(self, values: np.ndarray) -> sp.csr_array:
        """The matrix with these values, one for each of the coordinates; indices are shared."""
        return sp.csr_array((values[self.order], self.indices, self.indptr), shape=self.shape)
