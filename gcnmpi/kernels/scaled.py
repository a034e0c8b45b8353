"""A sparse matrix without values: a pattern, and numbers of its rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.rows import transposed
from partition.graph.graph import chunks

STEP = 1 << 22  # entries that are looked at at once


@dataclass(frozen=True)
class ScaledPattern:
    """Rows of a sparse matrix in which the value of row i and column j is left[i] · right[j].

    Such are Ã of unweighted graphs, whose entries are 1, and M, in which they are divided by
    degrees. Rows may lie among others: those of the own half of a matrix among those of its halo
    half, so that neither is a copy.

    Attributes
    ----------
    begins, ends : (rows,) int64
        Where the entries of each row begin and end.
    indices : (entries,) int32
        Columns, of these rows and of others; they count from ``first``.
    shape : (int, int)
    left : (rows,) float64 or None
    right : (columns,) float64 or None
        None: all 1, on all ranks.
    first : int
    """

    begins: np.ndarray
    ends: np.ndarray
    indices: np.ndarray
    shape: tuple[int, int]
    left: np.ndarray | None
    right: np.ndarray | None
    first: int = 0

    @classmethod
    def of(
        cls,
        starts: np.ndarray,
        indices: np.ndarray,
        columns: int,
        left: np.ndarray | None,
        right: np.ndarray | None,
    ) -> ScaledPattern:
        """That of compressed rows: of row i, the entries starts[i] to starts[i + 1]."""
        shape = len(starts) - 1, columns
        return cls(starts[:-1], starts[1:], indices, shape, left, right)

    @property
    def nnz(self) -> int:
        """Entries of these rows."""
        return int((self.ends - self.begins).sum())

    @property
    def starts(self) -> np.ndarray:
        """Where rows begin that lie one after the other, and the last one ends; (rows + 1,)."""
        assert np.array_equal(self.begins[1:], self.ends[:-1]), "rows lie among others"
        return np.append(self.begins, self.ends[-1:]) if self.shape[0] else np.zeros(1, np.int64)

    def pattern(self) -> sp.csr_array:
        """The same with 1 for all values, which take no memory."""
        ones = np.broadcast_to(np.int8(1), len(self.indices))
        return sp.csr_array((ones, self.indices, self.starts), shape=self.shape)

    def rows(self, first: int, last: int) -> ScaledPattern:
        """Some of the rows; entries are shared."""
        some = slice(first, last)
        begins, ends = self.begins[some], self.ends[some]
        left = None if self.left is None else self.left[some]
        shape = len(begins), self.shape[1]
        return replace(self, begins=begins, ends=ends, left=left, shape=shape)

    def halves(self, column: int) -> tuple[ScaledPattern, ScaledPattern]:
        """The columns before one, and the others. Entries are shared; columns rise in each row."""
        middles = self.begins.copy()
        starts = self.starts
        for first, last in chunks(starts, STEP):
            begin = starts[first]
            before = np.zeros(starts[last] - begin + 1, np.int32)
            np.cumsum(self.indices[begin : starts[last]] < column, out=before[1:])
            of = before[starts[first : last + 1] - begin]
            middles[first:last] += np.diff(of)
        (rows, columns), right = self.shape, self.right
        cut = (None, None) if right is None else (right[:column], right[column:])
        own = replace(self, ends=middles, shape=(rows, column), right=cut[0])
        others = rows, columns - column
        return own, replace(self, begins=middles, shape=others, right=cut[1], first=column)

    def transposed(self) -> ScaledPattern:
        """The transpose; entries are its own."""
        rows, columns = self.shape
        starts, indices = transposed(self.starts, self.indices, columns)
        return ScaledPattern.of(starts, indices, rows, self.right, self.left)


def scales(degree: np.ndarray, normalize: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers of rows and columns, whose products are the entries of M where those of Ã are 1.

    As :func:`partition.graph.aggregation.normalised` has them, up to rounding: 1 / √d of both for
    ``"sym"``, 1 / d of the row for ``"row"``; 0 for a degree of 0. Both are (n,) float64, as the
    row sums of Ã are; None: all 1.
    """
    if normalize == "none":
        return None, None
    if normalize == "row":
        return _inverse(degree), None
    of_both = _inverse(np.sqrt(degree))
    return of_both, of_both


def _inverse(numbers: np.ndarray) -> np.ndarray:
    return np.divide(1, numbers, out=np.zeros(len(numbers)), where=numbers != 0)
