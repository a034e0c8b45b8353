"""Rows of mostly zeros: a CSR matrix that reads like the dense array it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# Features are kept as CSR where at most this share of them is not 0, and they would take so many
# bytes: small ones are better aggregated once, and the result, which is dense, kept.
_MOST_FILLED = 0.05
LEAST_BYTES = 1 << 26
FORMS = ("auto", "dense", "sparse")
FILES = ("features_indptr", "features_indices", "features_data")
AT_ONCE = 1 << 24  # numbers that are looked at at once


def slices(count: int, at_once: int) -> Iterator[slice]:
    """Cut 0 … count − 1 into ranges of at most so many."""
    for start in range(0, count, at_once):
        yield slice(start, min(start + at_once, count))


def segments(indptr: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of the chosen rows of a CSR pattern are, and how many each has."""
    counts = np.asarray(indptr[chosen + 1] - indptr[chosen], dtype=np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(indptr[chosen] - (ends - counts), counts), counts


@dataclass(frozen=True, eq=False)
class SparseRows:
    """An (n, width) matrix, by its entries that are not 0; column numbers rise within a row.

    A slice of rows, or of rows and columns, is another view; rows that are picked by their numbers
    come as a dense array. So code that reads arrays on disk reads this too.

    Attributes
    ----------
    indptr : (n + 1,) int64
        Where rows begin in ``indices`` and ``data``, which may have more entries than these rows'.
    indices : (entries,) int32
    data : (entries,) float32
    width : int
    columns : slice
        Those that are seen.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    width: int
    columns: slice = field(default_factory=lambda: slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns are seen."""
        return len(self), len(range(*self.columns.indices(self.width)))

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers."""
        return self.data.dtype

    @property
    def flags(self) -> Any:
        """The flags of the array on disk."""
        return self.data.flags

    @property
    def base(self) -> np.ndarray:
        """The array that holds the memory of the numbers."""
        return self.data

    ndim = 2

    @property
    def size(self) -> int:
        """Numbers, zeros among them."""
        rows, columns = self.shape
        return rows * columns

    @property
    def nbytes(self) -> int:
        """Bytes as a dense array."""
        return self.size * self.dtype.itemsize

    @property
    def entries(self) -> int:
        """How many are stored, of all columns."""
        return int(self.indptr[-1] - self.indptr[0])

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, key: Any) -> Any:
        rows, columns = key if isinstance(key, tuple) else (key, self.columns)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step), columns]
            stop = max(start, stop)
            indptr = self.indptr[start : stop + 1]
            return SparseRows(indptr, self.indices, self.data, self.width, columns)
        numbers = np.asarray(rows)
        if numbers.dtype.kind == "b":
            numbers = np.flatnonzero(numbers)
        return self._dense(numbers)[:, columns]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The dense array it stands for."""
        dense = self._dense(np.arange(len(self)))[:, self.columns]
        return dense.astype(dtype or self.dtype, copy=False)

    def tobytes(self) -> bytes:
        """Bytes of the dense array."""
        return np.asarray(self).tobytes()

    def files(self) -> dict[str, np.ndarray]:
        """The arrays that a graph folder keeps, of all columns, by the names of their files."""
        some = slice(int(self.indptr[0]), int(self.indptr[-1]))
        indptr = np.asarray(self.indptr)
        arrays = indptr - some.start if some.start else indptr, self.indices[some], self.data[some]
        return dict(zip(FILES, arrays, strict=True))

    def picked(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries of some rows, one after the other: how many each has, columns and numbers."""
        places, counts = segments(np.asarray(self.indptr), rows)
        return counts, np.asarray(self.indices[places]), np.asarray(self.data[places])

    def _dense(self, rows: np.ndarray) -> np.ndarray:
        counts, columns, values = self.picked(rows)
        dense = np.zeros((len(rows), self.width), self.dtype)
        dense[np.repeat(np.arange(len(rows)), counts), columns] = values
        return dense


def kept_form(
    features: np.ndarray | SparseRows | None, form: str = "auto"
) -> np.ndarray | SparseRows | None:
    """Features as a folder keeps them: CSR or a dense array.

    ``form`` is one of ``FORMS``. "auto": sparse features stay so, and dense ones become so where
    that is worth it.
    """
    if form == "dense" and features is not None:
        return np.asarray(features)
    worth = features is not None and (form == "sparse" or features.nbytes >= LEAST_BYTES)
    if features is None or isinstance(features, SparseRows) or not worth:
        return features
    step = max(1, AT_ONCE // features.shape[1])
    pieces = slices(len(features), step)
    entries = sum(int(np.count_nonzero(features[piece])) for piece in pieces)
    most = features.size * (1 if form == "sparse" else _MOST_FILLED)
    return from_dense(features) if 0 < entries <= most else features


def from_dense(features: np.ndarray) -> SparseRows:
    """The entries of an (n, width) array that are not 0, some rows at a time."""
    n, width = features.shape
    step = max(1, AT_ONCE // max(1, width))
    counts, columns, values = [np.zeros(0, np.int64)], [], []
    for some in slices(n, step):
        row, column = np.nonzero(features[some])
        counts.append(np.bincount(row, minlength=some.stop - some.start))
        columns.append(column.astype(np.int32))
        values.append(features[some][row, column].astype(np.float32))
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return SparseRows(indptr, np.concatenate(columns), np.concatenate(values), width)


def check_rows(rows: SparseRows, first: int, last: int) -> str | None:
    """The fault of rows first … last − 1, None if they have none. They are read once."""
    starts = np.asarray(rows.indptr[first : last + 1])
    if (starts[1:] < starts[:-1]).any() or starts[0] < 0 or starts[-1] > len(rows.indices):
        return "row pointers of its features do not rise"
    columns = np.asarray(rows.indices[starts[0] : starts[-1]])
    if len(columns) and (columns.min() < 0 or columns.max() >= rows.width):
        return "a column of its features is outside of them"
    inside = np.ones(len(columns), bool)
    begins = starts[:-1] - starts[0]
    inside[begins[begins < len(columns)]] = False
    if (columns[1:] <= columns[:-1])[inside[1:]].any():
        return "columns of its features do not rise within a row"
    return None
